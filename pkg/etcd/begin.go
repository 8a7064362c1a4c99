package etcd

import "slices"

// Beginning is what the machine of a master may do with a disk that is empty.
type Beginning string

// Beginnings.
const (
	// Found: its member founds the cluster together with the other founders.
	Found Beginning = "Found"
	// Join: its member was added and joins a cluster that has data.
	Join Beginning = "Join"
	// Return: its member has run before. An empty disk has lost what the member promised to others, so that it must not begin
	// under its old number: another member has to be added in its place.
	Return Beginning = "Return"
	// Later: its member is not in the list yet, and the machine must not begin at all.
	Later Beginning = "Later"
)

// Begin says how the machine of a master begins and with which members. seen says that its member has been known to run, and
// founded that any member of the cluster has: both count while there is no list. founders are the masters that the cluster began
// with. One of them whose member was taken out is like any other.
func Begin(w Master, founders []Master, seen, founded bool, s State) (Beginning, []Master) {
	at := slices.IndexFunc(s.Members, w.Has)
	switch {
	case at >= 0 && s.Members[at].Started || !s.Known() && seen:
		return Return, nil
	case !s.Known() && founded:
		return Later, nil
	case slices.Contains(founders, w) && at < 0 && s.Known():
		// The others began without it, or it was taken out before it ran.
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
			return Later, nil // etcd asks for the name of every member
		}
	}
	return Join, all
}
