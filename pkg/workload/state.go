package workload

// Phase says whether a workload cluster can be worked with.
type Phase string

// Phases.
const (
	// Connecting: the first attempt has not ended.
	Connecting Phase = "Connecting"
	// Connected: the caches are filled and followed by watches.
	Connected Phase = "Connected"
	// Unreachable: the last attempt has failed, or a connection was lost. It is tried again, every ten seconds in the end.
	Unreachable Phase = "Unreachable"
)

// State is what is known of the way to a workload cluster.
type State struct {
	Phase Phase
	// Reason is empty unless Phase is Unreachable.
	Reason Reason
	// Message is a sentence for a person. It has no volatile parts and is empty when connected.
	Message string
}

// unreachable is the state that an error leads to.
func unreachable(err error, serverName string) State {
	reason := classify(err)
	return State{Phase: Unreachable, Reason: reason, Message: message(reason, err, serverName)}
}
