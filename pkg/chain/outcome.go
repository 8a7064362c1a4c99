package chain

import (
	"time"
)

// Outcome is what a handler says of its work when nothing went wrong.
type Outcome struct {
	// State is how far the handler got.
	State State
	// Reason is a CamelCase word for the handler's condition.
	Reason string
	// Message is a sentence for the handler's condition. It holds nothing volatile, or every reconcile would write it.
	Message string
	// After is when to look again; zero leaves it to the next event.
	After time.Duration
}

// State is how far a handler got.
type State int

const (
	// StateDone says that everything is as it should be.
	StateDone State = iota
	// StateWaiting says that the handler waits for something that it did not fail at.
	StateWaiting
	// StateStore says that the drafted status has to be stored before any later handler may act on it.
	StateStore
	// StateNotConfigured says that the user did not ask for what the handler does. It counts as done and has no condition.
	StateNotConfigured
	// StateUnknown says that nothing is to be done and that the handler cannot tell how things are. It counts as done.
	StateUnknown
)

// finished says whether nothing is left to do.
func (s State) finished() bool { return s == StateDone || s == StateNotConfigured || s == StateUnknown }

// Done is the outcome of a handler that has nothing left to do.
func Done() Outcome { return Outcome{State: StateDone, Reason: "Done"} }

// Wait is the outcome of a handler that waits. Message names the object it waits for; after is when to look again, zero
// leaves it to the next event.
func Wait(reason, message string, after time.Duration) Outcome {
	return Outcome{State: StateWaiting, Reason: reason, Message: message, After: after}
}

// Store is the outcome of a handler whose decision must be durable before others act on it: the chain stops, the
// controller stores the status and comes back.
func Store(message string) Outcome {
	return Outcome{State: StateStore, Reason: "Storing", Message: message}
}

// NotConfigured is the outcome of a handler whose work the user did not ask for.
func NotConfigured() Outcome { return Outcome{State: StateNotConfigured} }

// Unknown is the outcome of a handler that has nothing to do and cannot tell how things are; message says why.
func Unknown(reason, message string) Outcome {
	return Outcome{State: StateUnknown, Reason: reason, Message: message}
}
