package api

// WatchType is what a WatchEvent says.
type WatchType string

// The WatchTypes.
const (
	// WatchSnapshot has all machines, and is the first event.
	WatchSnapshot WatchType = "snapshot"
	// WatchChanged has a machine that is new or differs from the event before.
	WatchChanged WatchType = "changed"
	// WatchDeleted has the name of a machine that is gone.
	WatchDeleted WatchType = "deleted"
	// WatchError says that the server cannot tell the state of its machines for the time being.
	WatchError WatchType = "error"
	// WatchAlive says that nothing has changed. It comes at least every WatchAliveSeconds.
	WatchAlive WatchType = "alive"
)

// WatchAliveSeconds is the longest silence of a watch, in seconds.
const WatchAliveSeconds = 15

// WatchContentType is that of the answer to GET /api/v1/machines?watch=true.
const WatchContentType = "application/x-ndjson"

// WatchEvent is a line of the answer to GET /api/v1/machines?watch=true, which is an addition.
type WatchEvent struct {
	Type WatchType `json:"type"`
	// Machines are all machines, in a snapshot.
	Machines []Machine `json:"machines,omitempty"`
	// Machine is the one that has changed.
	Machine *Machine `json:"machine,omitempty"`
	// Name is that of the machine that is gone.
	Name string `json:"name,omitempty"`
	// Error is why the state is unknown.
	Error *Error `json:"error,omitempty"`
}
