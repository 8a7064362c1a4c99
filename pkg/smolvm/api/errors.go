package api

import (
	"errors"
	"fmt"
	"net/http"
)

// Code is what an error is, for programs.
type Code string

// The Codes. Each has its status of HTTP, see Code.Status.
const (
	CodeBadRequest   Code = "BAD_REQUEST"
	CodeUnauthorized Code = "UNAUTHORIZED"
	CodeForbidden    Code = "FORBIDDEN"
	CodeNotFound     Code = "NOT_FOUND"
	CodeTimeout      Code = "TIMEOUT"
	CodeConflict     Code = "CONFLICT"
	CodePortInUse    Code = "PORT_IN_USE"
	CodeInternal     Code = "INTERNAL_ERROR"
	CodeUnavailable  Code = "UNAVAILABLE"

	// The following are additions.

	// CodeImagePullFailed: the registry did not deliver the image.
	CodeImagePullFailed Code = "IMAGE_PULL_FAILED"
	// CodeImageMalformed: what the registry delivered, or the .smolmachine file, cannot become a root file system.
	CodeImageMalformed Code = "IMAGE_MALFORMED"
	// CodeDiskFull: the host's disk has no room.
	CodeDiskFull Code = "DISK_FULL"
	// CodeUnsupported: the server cannot do what is asked.
	CodeUnsupported Code = "UNSUPPORTED"
	// CodeUnsupportedArtifact: the .smolmachine file cannot run on this server.
	CodeUnsupportedArtifact Code = "UNSUPPORTED_ARTIFACT"
)

var statuses = map[Code]int{
	CodeBadRequest:          http.StatusBadRequest,
	CodeUnauthorized:        http.StatusUnauthorized,
	CodeForbidden:           http.StatusForbidden,
	CodeNotFound:            http.StatusNotFound,
	CodeTimeout:             http.StatusRequestTimeout,
	CodeConflict:            http.StatusConflict,
	CodePortInUse:           http.StatusConflict,
	CodeInternal:            http.StatusInternalServerError,
	CodeUnavailable:         http.StatusServiceUnavailable,
	CodeImagePullFailed:     http.StatusBadGateway,
	CodeImageMalformed:      http.StatusBadRequest,
	CodeDiskFull:            http.StatusInsufficientStorage,
	CodeUnsupported:         http.StatusBadRequest,
	CodeUnsupportedArtifact: http.StatusBadRequest,
}

// Status returns the status of HTTP that belongs to the code.
func (c Code) Status() int {
	if status, ok := statuses[c]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// Error is an error of the API. Its JSON is the body of the answer.
type Error struct {
	// Message is a sentence for people.
	Message string `json:"error"`
	// Code is empty if the answer had none, as those of proxies and of smolvm's HTTP framework.
	Code Code `json:"code"`
	// HTTPStatus is that of the answer.
	HTTPStatus int `json:"-"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Status returns the status of HTTP of the answer.
func (e *Error) Status() int {
	if e.HTTPStatus != 0 {
		return e.HTTPStatus
	}
	return e.Code.Status()
}

// Errorf returns an Error.
func Errorf(code Code, format string, arguments ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, arguments...)}
}

// ErrorOf returns the Error in an error's chain, or one with CodeInternal. It has the whole chain's text.
func ErrorOf(err error) *Error {
	var found *Error
	if !errors.As(err, &found) {
		return &Error{Code: CodeInternal, Message: err.Error()}
	}
	return &Error{Code: found.Code, HTTPStatus: found.HTTPStatus, Message: err.Error()}
}

// CodeOf returns the code of an error of the API; empty if it is another error, or has none.
func CodeOf(err error) Code {
	var found *Error
	if !errors.As(err, &found) {
		return ""
	}
	return found.Code
}

// IsNotFound reports whether there is no such machine. A 404 without a code is no such answer: it means that the server
// does not know the path.
func IsNotFound(err error) bool { return CodeOf(err) == CodeNotFound }
