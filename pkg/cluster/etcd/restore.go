package etcd

import (
	"strconv"
	"strings"
)

// Phase is the phase of a restore.
type Phase string

// The Phases, in order.
const (
	// NotRestoring means that nothing has to be restored, or everything has been.
	NotRestoring Phase = ""
	// Checking means that it is not known yet whether the snapshot exists and is intact. Nothing is changed before
	// that.
	Checking Phase = "Checking"
	// Stopping means that machines of masters still run.
	Stopping Phase = "Stopping"
	// Committing means that all machines are down, and it has to be recorded that their data is replaced. Until then
	// the restore can be canceled.
	Committing Phase = "Committing"
	// Placing means that the snapshot replaces the data of each master.
	Placing Phase = "Placing"
	// Founding means that each master has the snapshot, and it has to be recorded that they found the cluster again.
	Founding Phase = "Founding"
)

// Restoration is what is known of a cluster that is restored from a snapshot.
type Restoration struct {
	// Wanted is the requested snapshot, Committed the one that began to replace the data, and Done the one that etcd
	// was last founded from: "<file>/<generation>" each, and empty if there is none.
	Wanted, Committed, Done string
	// Checked says that the snapshot that Target returns is intact.
	Checked bool
	// Masters are the masters in the spec.
	Masters []RestoredMaster
}

// RestoredMaster is a master of a cluster that is restored from a snapshot.
type RestoredMaster struct {
	// Running says that its machine runs, or may run.
	Running bool
	// Placed says that its data is that of the snapshot that Target returns.
	Placed bool
}

// Target returns the snapshot that the cluster is being restored from, or "" if there is none. A restore that began is
// finished, or replaced by one from a new snapshot, because some masters may have lost their earlier data. The snapshot
// that etcd was last founded from does not count as new, because some masters have its data with later changes, unless
// its generation was raised.
func (r Restoration) Target() string {
	if r.Wanted != "" && !again(r.Wanted, r.Done) && !again(r.Wanted, r.Committed) {
		return r.Wanted
	}
	return r.Committed
}

// again reports whether the wanted snapshot was restored already, or is being restored: the same file at the same or an
// earlier generation. Lowering the generation does not mean that everything since should be lost.
func again(wanted, restored string) bool {
	file, generation := SplitSnapshot(wanted)
	before, last := SplitSnapshot(restored)
	return file == before && generation <= last
}

// SplitSnapshot splits "<file>/<generation>", as it is in Restoration.
func SplitSnapshot(snapshot string) (file string, generation int64) {
	file, number, _ := strings.Cut(snapshot, "/")
	generation, _ = strconv.ParseInt(number, 10, 64) // a generation that cannot be parsed was never raised
	return file, generation
}

// Phase returns what to do next. Two facts are recorded on the way, each in one write: that the data is replaced
// (Committing) and that the masters found the cluster again (Founding). An operator that is killed at any point
// continues where it stopped.
func (r Restoration) Phase() Phase {
	target := r.Target()
	switch {
	case target == "":
		return NotRestoring
	case target != r.Committed && !r.Checked:
		return Checking
	case r.any(func(m RestoredMaster) bool { return m.Running }):
		return Stopping
	case target != r.Committed:
		return Committing
	case len(r.Masters) == 0 || r.any(func(m RestoredMaster) bool { return !m.Placed }):
		return Placing
	}
	return Founding
}

// Halted reports whether the machines of masters have to be down.
func (r Restoration) Halted() bool {
	phase := r.Phase()
	return r.Committed != "" || phase != NotRestoring && phase != Checking
}

func (r Restoration) any(has func(RestoredMaster) bool) bool {
	for _, m := range r.Masters {
		if has(m) {
			return true
		}
	}
	return false
}
