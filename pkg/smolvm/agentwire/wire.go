// Package agentwire is the protocol between the host and the agent in a microVM, with the host's client, the guest's
// server, and the guest's configuration at boot.
//
// Both sides exchange frames over one stream of bytes, a virtio-serial port: a length in four bytes, the most significant
// first, and as many bytes of JSON, at most MaxFrame. Each frame has the id of its request, so that requests run side by
// side. Data is in chunks of at most MaxChunk, and its sender needs credit for it: a receiver that is slow stops only the
// request that it belongs to, and needs no more memory than a window for it.
//
// # Sessions
//
// The port outlives its hosts. A host that is killed can leave half a frame in the guest, the guest can be in the middle
// of an answer, and a guest does not always notice that the host has changed: it may not read at that moment. So a session
// begins with a mark in the stream, bytes 0xff, which occur neither in JSON nor more than three times in a row in the
// length of a frame. When a side finds a mark, it drops what it has read of a frame and what it knows of an earlier
// session, and reads a frame from there.
//
// A host writes a mark and "hello" with a nonce. The guest ends the requests of the earlier session (it kills their
// processes), and writes a mark and "welcome" with the same nonce. The host drops everything before that: the rest of a
// frame, and answers to earlier hosts, whose nonces differ. The port keeps the order of bytes, so what follows the welcome
// belongs to this session.
package agentwire

import "time"

const (
	// Port is the name of the virtio-serial port.
	Port = "dev.smolvm.agent.0"
	// Version is that of the protocol. Both sides must have the same.
	Version = 1
	// MaxFrame bounds a frame, in bytes of JSON.
	MaxFrame = 1 << 20
	// MaxChunk bounds the data in a frame, in bytes.
	MaxChunk = 64 << 10
	// MaxRequests is how many requests a session has at a time.
	MaxRequests = 64
	// MaxFile bounds a file that is read or written, in bytes.
	MaxFile = 1 << 30

	// window is how much data of a stream can be on its way, in bytes.
	window = 128 << 10
	// queue is how many frames wait to be written.
	queue = 4
)

// Exit codes of an Exec that are not the program's own, as shells and timeout(1) have them. A signal n is 128+n.
const (
	ExitTimeout       = 124
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// kind says what a frame is about.
type kind string

// Frames of the host, of the guest, and of both.
const (
	kindHello    kind = "hello"
	kindPing     kind = "ping"
	kindExec     kind = "exec"
	kindRead     kind = "read"
	kindWrite    kind = "write"
	kindShutdown kind = "shutdown"
	kindCancel   kind = "cancel"

	kindWelcome kind = "welcome"
	kindEnd     kind = "end"  // the last frame of a request
	kindFail    kind = "fail" // the guest cannot continue the session

	kindData   kind = "data"
	kindCredit kind = "credit"
)

// stream is one direction of a request's data.
type stream string

const (
	stdin  stream = "stdin"
	stdout stream = "stdout"
	stderr stream = "stderr"
	// content is that of a file.
	content stream = "content"
)

// frame is a message. ID is 0 in those that are about the session.
type frame struct {
	ID   uint64 `json:"id"`
	Kind kind   `json:"kind"`

	Session string `json:"session,omitempty"`
	Version int    `json:"version,omitempty"`

	Exec *Exec  `json:"exec,omitempty"`
	Path string `json:"path,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	// Input says that there is data for the exec's standard input.
	Input bool `json:"input,omitempty"`

	Stream stream `json:"stream,omitempty"`
	Data   []byte `json:"data,omitempty"`
	// Last says that no data follows in the stream.
	Last   bool `json:"last,omitempty"`
	Credit int  `json:"credit,omitempty"`

	Status   *Status `json:"status,omitempty"`
	ExitCode int     `json:"exitCode,omitempty"`
	Size     int64   `json:"size,omitempty"`
	Error    *Error  `json:"error,omitempty"`
}

// Exec is a command that runs beside the workload, in the same root.
type Exec struct {
	// Command is the program and its arguments. A name without a slash is looked up in PATH.
	Command []string `json:"command"`
	// Env has NAME=value each, on top of the workload's environment.
	Env []string `json:"env,omitempty"`
	// Directory is the working directory; empty for the workload's.
	Directory string `json:"directory,omitempty"`
	// User is a name or number of the image's users, or both of user and group with a colon; empty for the workload's.
	User string `json:"user,omitempty"`
	// Timeout is how long the command may run before it is killed with its process group. 0: without a limit.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Workload says how far the process of the machine's image is.
type Workload string

const (
	// WorkloadNone is not started yet, or there is none.
	WorkloadNone Workload = "none"
	// WorkloadRunning runs.
	WorkloadRunning Workload = "running"
	// WorkloadEnded has ended. The machine keeps running.
	WorkloadEnded Workload = "ended"
)

// Status is what the guest says about itself.
type Status struct {
	Workload Workload `json:"workload"`
	// ExitCode is that of a workload that has ended, 0 to 255.
	ExitCode *int `json:"exitCode,omitempty"`
	// Uptime is the time since the kernel was started.
	Uptime time.Duration `json:"uptime"`
	// Grown are the serial numbers of the disks whose file systems were grown in this boot.
	Grown []string `json:"grown,omitempty"`
}
