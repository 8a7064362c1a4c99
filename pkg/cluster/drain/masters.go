package drain

// Master is the pod of another master, as far as the release of a master depends on it.
type Master struct {
	// Pod is the pod's name.
	Pod string
	// Ready means that the pod and its Node are Ready.
	Ready bool
	// Deleted means that the pod is being deleted. Leaving means that the release of its machine was announced.
	Deleted, Leaving bool
}

// CountsForQuorum returns whether another master is part of the quorum of etcd that is left when the machine of the pod
// is released.
//
// A master that is being deleted counts as long as it is held, because one has to go first when a majority is being
// deleted: the pod with the smaller name, or the one whose release is confirmed already.
//
// A master is released in three steps, and each of them is recorded: its release is announced (ReleaseAnnounced); the
// API server is asked which masters stay and, if too few do, the announcement is withdrawn; otherwise it becomes
// confirmed (Releasing), unless the pod has changed since it was read, and the runner gets the order. Therefore neither two
// operators, nor one with an outdated cache, nor one that crashes at any point release two masters at a time. Of two
// releases that are confirmed, the one that read the API server last
//   - either knew that the other pod is being deleted: then it saw the other's announcement, or goes first by its name,
//     and the other read the API server before this pod was deleted and after its own announcement, which was seen;
//   - or did not, and then its own announcement came before the deletion of the other pod, which saw it.
func CountsForQuorum(pod string, confirmed bool, other Master) bool {
	return other.Ready && !other.Leaving && (!other.Deleted || confirmed || pod < other.Pod)
}
