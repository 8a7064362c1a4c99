package workload

// Phase says whether a workload cluster can be used.
type Phase string

// The Phases.
const (
	// Connecting means that the first attempt has not ended.
	Connecting Phase = "Connecting"
	// Connected means that the caches are filled and kept up to date by watches.
	Connected Phase = "Connected"
	// Unreachable means that the last attempt failed, or a connection was lost. It is retried, eventually every ten
	// seconds.
	Unreachable Phase = "Unreachable"
)

// State is what is known of the connection to a workload cluster.
type State struct {
	Phase Phase
	// Reason is empty unless Phase is Unreachable.
	Reason Reason
	// Message is a sentence for a person. It has no volatile parts and is empty when connected.
	Message string
}

// unreachable returns the state for an error.
func unreachable(err error, serverName string) State {
	reason := classify(err)
	return State{Phase: Unreachable, Reason: reason, Message: message(reason, err, serverName)}
}
