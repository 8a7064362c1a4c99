package agentwire

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Code says which kind of error an answer is.
type Code string

// Codes of errors.
const (
	CodeNotFound    Code = "notFound"    // there is no such file, directory or user
	CodeIsDirectory Code = "isDirectory" // a file was expected
	CodeNotFile     Code = "notFile"     // a device, a pipe or something else whose reading could take forever
	CodeTooLarge    Code = "tooLarge"    // a file has more than MaxFile bytes
	CodeNoSpace     Code = "noSpace"     // the guest's disk is full
	CodeInvalid     Code = "invalid"     // the request makes no sense
	CodeBusy        Code = "busy"        // there are too many requests, or the machine is going down
	CodeCancelled   Code = "cancelled"   // the host has canceled the request
	CodeFailed      Code = "failed"      // anything else
)

// Errors of requests, for errors.Is.
var (
	ErrNotFound    = &Error{Code: CodeNotFound}
	ErrIsDirectory = &Error{Code: CodeIsDirectory}
	ErrNotFile     = &Error{Code: CodeNotFile}
	ErrTooLarge    = &Error{Code: CodeTooLarge}
	ErrNoSpace     = &Error{Code: CodeNoSpace}
	ErrInvalid     = &Error{Code: CodeInvalid}
	ErrBusy        = &Error{Code: CodeBusy}
)

var (
	// ErrEnded is in the error of each request of a session that has ended, together with why it has.
	ErrEnded = errors.New("the session with the guest has ended")
	// ErrAway is what reading the guest's port returns while no host is connected. Serve continues after it.
	ErrAway = errors.New("no host is connected")

	// errProtocol is in the errors about bytes that the protocol does not have.
	errProtocol = errors.New("the other side does not follow the protocol")
	// errCancelled ends the streams of a request that the host has canceled.
	errCancelled = errors.New("the host has cancelled the request")
	// errDone ends the streams of a request that was answered.
	errDone = errors.New("the request has ended")
)

// maxText bounds a text of the guest in an error, in bytes.
const maxText = 1024

// Error is the answer to a request that could not be done.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Errorf returns an error with a code.
func Errorf(code Code, format string, arguments ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, arguments...)}
}

// Error returns the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Is reports whether target is an Error with the same code.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// asError returns the answer with an error.
func asError(err error) *Error {
	var known *Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errCancelled), errors.Is(err, ErrEnded):
		return &Error{Code: CodeCancelled, Message: err.Error()}
	case errors.As(err, &known):
		return &Error{Code: known.Code, Message: readable(err.Error())}
	default:
		return &Error{Code: CodeFailed, Message: readable(err.Error())}
	}
}

// readable returns a text without what a terminal or a log would interpret, shortened. A guest may have written it.
func readable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text[:min(len(text), maxText)])
	return strings.TrimSpace(strings.ToValidUTF8(text, ""))
}
