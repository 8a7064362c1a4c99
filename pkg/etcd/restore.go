package etcd

import (
	"strconv"
	"strings"
)

// Phase is how far a cluster is on its way back to a snapshot.
type Phase string

// Phases, in the order of time.
const (
	// NotRestoring: nothing is to be restored, or it has been.
	NotRestoring Phase = ""
	// Checking: it is not known yet that the snapshot is there and whole. Nothing is touched before.
	Checking Phase = "Checking"
	// Stopping: machines of masters run yet.
	Stopping Phase = "Stopping"
	// Committing: all are down, and it is to be written down that their data is replaced. Until then it can be called off.
	Committing Phase = "Committing"
	// Placing: the snapshot is put in the place of the data of each master.
	Placing Phase = "Placing"
	// Founding: each master has it, and it is to be written down that they found the cluster anew.
	Founding Phase = "Founding"
)

// Restoration is what is known of a cluster that is to be brought back to a snapshot.
type Restoration struct {
	// Wanted is the snapshot that is asked for, Committed the one that was begun to be put in place, and Done the one that etcd began with:
	// "<file>/<generation>" each, and empty where there is none.
	Wanted, Committed, Done string
	// Checked says that the snapshot that Target returns is whole.
	Checked bool
	// Masters are those of the spec.
	Masters []RestoredMaster
}

// RestoredMaster is a master of a cluster that is to be brought back to a snapshot.
type RestoredMaster struct {
	// Running says that its machine runs, or may run.
	Running bool
	// Placed says that its data is that of the snapshot that Target returns.
	Placed bool
}

// Target is the snapshot that the cluster is on its way to; empty when it is on its way to none. What was begun is ended, or a new
// snapshot is put in its place: some masters may have lost what they had before. The one that etcd began with is no new one, for some
// have the data of it that has been used since, unless its generation is a later one.
func (r Restoration) Target() string {
	if r.Wanted != "" && !again(r.Wanted, r.Done) && !again(r.Wanted, r.Committed) {
		return r.Wanted
	}
	return r.Committed
}

// again says whether a snapshot that is asked for was restored already, or is being: the same one of no later generation. Who takes the
// generation back does not mean that everything since is to be lost.
func again(wanted, restored string) bool {
	file, generation := SplitSnapshot(wanted)
	before, last := SplitSnapshot(restored)
	return file == before && generation <= last
}

// SplitSnapshot splits "<file>/<generation>", as Restoration has it.
func SplitSnapshot(snapshot string) (file string, generation int64) {
	file, number, _ := strings.Cut(snapshot, "/")
	generation, _ = strconv.ParseInt(number, 10, 64) // what cannot be read was never raised
	return file, generation
}

// Phase is what is to be done next. Two things are written down on the way, each in one write: that the data is replaced (Committing)
// and that the masters found the cluster anew (Founding). An operator that ends at any point goes on where the other was.
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

// Halted says whether the machines of masters have to be down.
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
