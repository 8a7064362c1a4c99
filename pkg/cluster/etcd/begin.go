package etcd

import "slices"

// Beginning is how the machine of a master may start with an empty etcd disk.
type Beginning string

// The Beginnings.
const (
	// Found means that its member founds the cluster together with the other founding members.
	Found Beginning = "Found"
	// Join means that its member was added and joins a cluster that has data.
	Join Beginning = "Join"
	// Return means that its member ran before. With its disk, the member lost what it promised to the other members, so
	// it must not start again under its old ID: another member has to be added in its place.
	Return Beginning = "Return"
	// Later means that its member is not in the list yet, and the machine must not start at all.
	Later Beginning = "Later"
)

// Begin decides how the machine of a master starts and with which members. seen says that its member is known to have
// run, and founded that any member of the cluster has; both matter only while there is no member list. founders are the
// founding masters of the cluster. A founding master whose member was removed is treated like any other.
func Begin(w Master, founders []Master, seen, founded bool, s State) (Beginning, []Master) {
	at := slices.IndexFunc(s.Members, w.Has)
	switch {
	case at >= 0 && s.Members[at].Started || !s.Known() && seen:
		return Return, nil
	case !s.Known() && founded:
		return Later, nil
	case slices.Contains(founders, w) && at < 0 && s.Known():
		// The other members founded without it, or it was removed before it ran.
		return Later, nil
	case slices.Contains(founders, w) && (at < 0 || !s.Members[at].Learner):
		return Found, founders
	case at < 0:
		return Later, nil
	}
	var all []Master
	for i, m := range s.Members {
		switch {
		case i == at:
			all = append(all, w)
		case m.Name != "":
			all = append(all, Master{Name: m.Name, PeerURL: m.PeerURL})
		default:
			return Later, nil // etcd requires the name of every member
		}
	}
	return Join, all
}
