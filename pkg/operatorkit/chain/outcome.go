package chain

import (
	"time"
)

// Outcome is the result of a handler that has not failed.
type Outcome struct {
	// State is how far the handler got.
	State State
	// Reason is a CamelCase word for the handler's condition.
	Reason string
	// Message is a sentence for the handler's condition. It must not contain anything volatile, because every reconcile
	// would write it then.
	Message string
	// After is when to run again; zero means to wait for the next event.
	After time.Duration
}

// State is how far a handler got.
type State int

const (
	// StateDone means that everything is as it should be.
	StateDone State = iota
	// StateWaiting means that the handler waits for something, but has not failed.
	StateWaiting
	// StateStore means that the changed status has to be stored before any later handler may act on it.
	StateStore
	// StateAgain means that the handler changed what the state was made from: the handlers that depend on it wait for the
	// next pass, which begins at once. Nothing is stored in between.
	StateAgain
	// StateNotConfigured means that the user did not request what the handler does. It counts as done and has no
	// condition.
	StateNotConfigured
	// StateUnknown means that there is nothing to do and that the handler does not know the actual state. It counts as
	// done.
	StateUnknown
)

// finished returns whether nothing is left to do.
func (s State) finished() bool { return s == StateDone || s == StateNotConfigured || s == StateUnknown }

// Done returns the outcome of a handler that has nothing left to do.
func Done() Outcome { return Outcome{State: StateDone, Reason: "Done"} }

// Wait returns the outcome of a handler that waits. message names the object that it waits for; after is when to run
// again, and zero means to wait for the next event.
func Wait(reason, message string, after time.Duration) Outcome {
	return Outcome{State: StateWaiting, Reason: reason, Message: message, After: after}
}

// Store returns the outcome of a handler whose decision must be durable before others act on it: the chain stops, and
// the controller stores the status and reconciles again.
func Store(message string) Outcome {
	return Outcome{State: StateStore, Reason: "Storing", Message: message}
}

// Again returns the outcome of a handler that changed what the state was made from; message says what.
func Again(message string) Outcome {
	return Outcome{State: StateAgain, Reason: "Again", Message: message, After: againAfter}
}

// againAfter is when a pass is repeated at the latest. Usually the event of the change comes first.
const againAfter = time.Second

// NotConfigured returns the outcome of a handler whose work the user did not request.
func NotConfigured() Outcome { return Outcome{State: StateNotConfigured} }

// Unknown returns the outcome of a handler that has nothing to do and does not know the actual state; message says why.
func Unknown(reason, message string) Outcome {
	return Outcome{State: StateUnknown, Reason: reason, Message: message}
}
