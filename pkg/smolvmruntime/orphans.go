package smolvmruntime

import (
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

const (
	// sweepInterval is the time between two checks of the machines.
	sweepInterval = 5 * time.Minute
	// orphanGrace is how long a machine must have been an orphan before it is deleted.
	orphanGrace = 10 * time.Minute
	// deleteTime bounds a deletion: the machine is stopped first.
	deleteTime = 2 * time.Minute
)

// claim is what the API server says of the SmolVM that a machine says it belongs to.
type claim struct {
	// uid is that of the SmolVM with the namespace and the name; empty if there is none. One that is being deleted
	// exists: the controller deletes its machine.
	uid string
	// node is the node that it has; empty if none is written.
	node string
	// elsewhere says that the UID of the machine's owner is that of a SmolVM with another namespace or name.
	elsewhere bool
}

// verdict is what the agent does with a machine.
type verdict string

const (
	// machineForeign is of another cluster, or made by hand: it is not the agent's to judge.
	machineForeign verdict = "foreign"
	// machineWanted has its SmolVM.
	machineWanted verdict = "wanted"
	// machineKept belongs to no SmolVM of this node, and may belong to someone.
	machineKept verdict = "kept"
	// machineOrphan belongs to nothing.
	machineOrphan verdict = "orphan"
)

// judge decides what the agent does with a machine, and says why. Only a machine that nothing claims is an orphan.
// After a restore from a backup, a SmolVM has another UID or has lost its node, and its disks are all that is left of
// its data: people decide on these.
func judge(m *api.Machine, cluster, node string, c claim) (what verdict, why string) {
	switch {
	case !isOurs(m, cluster):
		return machineForeign, "it does not say that it belongs to a SmolVM of this cluster"
	case c.uid == m.Owner.UID && (c.node == "" || c.node == node):
		return machineWanted, "it has its SmolVM"
	case c.uid == m.Owner.UID:
		return machineKept, "its SmolVM has another node"
	case c.uid != "":
		return machineKept, "a SmolVM of its namespace and name exists with another UID, as after a restore"
	case c.elsewhere:
		return machineKept, "a SmolVM of its UID exists with another namespace or name"
	}
	return machineOrphan, "no SmolVM has its namespace and name"
}

// isOurs reports whether a machine says that it belongs to a SmolVM of this cluster.
func isOurs(m *api.Machine, cluster string) bool {
	return cluster != "" && m.Owner != nil && m.Owner.Cluster == cluster && m.Owner.UID != "" && m.Owner.Namespace != "" && m.Owner.Name != ""
}

// orphanKey tells machines apart, also those of the same name.
type orphanKey struct {
	name, owner string
	createdAt   int64
}

func keyOf(m *api.Machine) orphanKey { return orphanKey{m.Name, m.Owner.UID, m.CreatedAt} }

// sightings are when machines were first seen as orphans. Each must have been one at every look since.
type sightings map[orphanKey]time.Time

// next returns the sightings after a look, and the orphans that have been so for long enough. An orphan that is seen
// for the first time never has.
func (s sightings) next(orphans []api.Machine, now time.Time) (after sightings, ripe []api.Machine) {
	after = sightings{}
	for _, m := range orphans {
		key := keyOf(&m)
		first, known := s[key]
		if !known {
			first = now
		}
		after[key] = first
		if known && now.Sub(first) >= orphanGrace {
			ripe = append(ripe, m)
		}
	}
	return after, ripe
}
