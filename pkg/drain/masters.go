package drain

// Master is the pod of another master, as far as a master that is to be let go depends on it.
type Master struct {
	// Pod is the pod's name.
	Pod string
	// Ready says that the pod and its Node are.
	Ready bool
	// Deleted says that the pod is being deleted. Leaving says that its machine has been let go, or that this was announced.
	Deleted, Leaving bool
}

// Stays says whether another master is part of the majority of etcd that is left when the machine of the pod is let go.
//
// One that is being deleted counts as long as it is held, for somebody has to go first when a majority is being deleted: the pod
// with the smaller name. Two operators, or one that sees late, still let no two masters go at a time, as long as each announces that
// it lets a machine go before it asks the API server who stays, and steps back when too few do. For of two that go, the one
// that asks last
//   - either knows that the other is being deleted: then it sees its announcement, or goes first by its name, and then the other
//     has asked before this pod was deleted, after its own announcement, which is seen;
//   - or does not, and then its own announcement came before the other was deleted, which that one sees.
func Stays(pod string, other Master) bool {
	return other.Ready && !other.Leaving && (!other.Deleted || pod < other.Pod)
}
