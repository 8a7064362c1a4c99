package qmp

import (
	"errors"
	"fmt"
)

// ErrClosed is the error of calls on a connection that has ended, because QEMU ended or because Close was called. A
// command whose reply was outstanding may or may not have been carried out.
var ErrClosed = errors.New("the QMP connection is closed")

// ClassDeviceNotFound is the Class of a CommandError that says that the named device does not exist. All other classes
// except CommandNotFound have no specific meaning (QEMU: qapi/error.json).
const ClassDeviceNotFound = "DeviceNotFound"

// CommandError says that QEMU rejected a command.
type CommandError struct {
	// Command is what was rejected, without its arguments, which may be secret.
	Command string
	// Class and Description are QEMU's words. Only Class is meant for decisions.
	Class, Description string
}

// Error names the command and the reason of its rejection.
func (e *CommandError) Error() string {
	return fmt.Sprintf("QEMU refuses %s: %s (%s)", e.Command, e.Description, e.Class)
}

// ProtocolError says that the data from the socket is not QMP. The connection is closed after it.
type ProtocolError struct {
	// Line is the beginning of the data.
	Line string
	// Err is what is wrong with it.
	Err error
}

// Error quotes the line and says what is wrong with it.
func (e *ProtocolError) Error() string { return fmt.Sprintf("%q is not QMP: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *ProtocolError) Unwrap() error { return e.Err }

// notQMP returns a ProtocolError for a line.
func notQMP(line []byte, err error) error {
	const shown = 80
	return &ProtocolError{Line: string(line[:min(len(line), shown)]), Err: err}
}
