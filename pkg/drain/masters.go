package drain

// Master is the pod of another master, as far as a master that is to be let go depends on it.
type Master struct {
	// Pod is the pod's name.
	Pod string
	// Ready says that the pod and its Node are.
	Ready bool
	// Deleted says that the pod is being deleted. Leaving says that it was announced that its machine is let go.
	Deleted, Leaving bool
}

// Stays says whether another master is part of the majority of etcd that is left when the machine of the pod is let go.
//
// One that is being deleted counts as long as it is held, for somebody has to go first when a majority is being deleted: the pod
// with the smaller name, or the one of which it is certain already that it goes.
//
// A master goes in three steps, each of which is written down: its going is announced (LettingGo); who stays is asked of the API server,
// and if too few do, the announcement is taken back; else it is certain (Releasing), unless the pod has changed since it was asked, and
// the runner is told. So two operators, or one that sees late, or one that ends anywhere, let no two masters go at a time. For of
// two that are certain, the one that asked last
//   - either knew that the other is being deleted: then it saw its announcement, or goes first by its name, and then the other
//     has asked before this pod was deleted, after its own announcement, which was seen;
//   - or did not, and then its own announcement came before the other was deleted, which that one saw.
func Stays(pod string, certain bool, other Master) bool {
	return other.Ready && !other.Leaving && (!other.Deleted || certain || pod < other.Pod)
}
