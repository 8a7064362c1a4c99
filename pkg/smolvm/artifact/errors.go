package artifact

import (
	"errors"
	"fmt"
	"io/fs"
)

// PathError says why there is no artifact at a path.
type PathError struct {
	// Path is what was asked for, What says what is wrong with it, and Do what to do.
	Path, What, Do string
	// Missing says that there is nothing: errors.Is finds fs.ErrNotExist.
	Missing bool
	// Digest is that of the file if it is not the one that was asked for.
	Digest string
}

// Error has all of them.
func (e *PathError) Error() string { return fmt.Sprintf("%.300q: %s; %s", e.Path, e.What, e.Do) }

// Is makes fs.ErrNotExist match where there is nothing.
func (e *PathError) Is(target error) bool { return e.Missing && target == fs.ErrNotExist }

// MalformedError says what is wrong with the content of an artifact.
type MalformedError struct{ Path, Reason string }

// Error has the path, the reason, and what to do.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("%.300q is no artifact of smolvm, or a damaged one: %s; copy it again, or pack it again", e.Path, e.Reason)
}

// UnsupportedError says what of an artifact there is not here.
type UnsupportedError struct{ Path, Reason string }

// Error has the path, the reason, and what to do.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%.300q cannot run here: %s; pack another one from a container image, or name an image instead", e.Path, e.Reason)
}

// wrong and lacking are errors of a part, which does not know the file.
type (
	wrong   struct{ reason string }
	lacking struct{ reason string }
)

// Error implements error.
func (e wrong) Error() string { return e.reason }

// Error implements error.
func (e lacking) Error() string { return e.reason }

func wrongf(format string, arguments ...any) error { return wrong{fmt.Sprintf(format, arguments...)} }

func lackingf(format string, arguments ...any) error {
	return lacking{fmt.Sprintf(format, arguments...)}
}

// because returns the error of a part as one of the file.
func (f *File) because(err error) error {
	var w wrong
	var l lacking
	switch {
	case errors.As(err, &w):
		return &MalformedError{Path: f.path, Reason: w.reason}
	case errors.As(err, &l):
		return &UnsupportedError{Path: f.path, Reason: l.reason}
	}
	return err
}

func (f *File) malformed(format string, arguments ...any) error {
	return f.because(wrongf(format, arguments...))
}
