package vmrunner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// access is a password of a display and when it expires, in QEMU's words. The zero value locks the display.
type access struct{ password, expiry string }

const (
	expiresNow   = "now"
	expiresNever = "never"
)

var (
	errNoPassword = errors.New("the display is locked because its Secret, or the key display-password in it, is missing")
	expiryPattern = regexp.MustCompile(`^(now|never|\+?[0-9]{1,12})$`)
)

// readAccess reads the files of a Secret. An error says why the display has to be locked. It has nothing of the password.
func readAccess(directory string) (access, error) {
	password, err := readUpTo(filepath.Join(directory, vmconfig.DisplayPassword), vmconfig.MaxPassword)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return access{}, errNoPassword
	case err != nil:
		return access{}, fmt.Errorf("the display is locked because its Secret cannot be read: %w", err)
	case !utf8.Valid(password) || bytes.ContainsFunc(password, unicode.IsControl):
		return access{}, fmt.Errorf("the display is locked because the key %s of its Secret has something else than text, or a control character, such as a line break at its end", vmconfig.DisplayPassword)
	case len(password) == 0 || len(password) > vmconfig.MaxPassword:
		return access{}, fmt.Errorf("the display is locked because the key %s of its Secret does not have 1 to %d bytes", vmconfig.DisplayPassword, vmconfig.MaxPassword)
	}
	expiry, err := readUpTo(filepath.Join(directory, vmconfig.DisplayExpiry), vmconfig.MaxPassword)
	if errors.Is(err, os.ErrNotExist) {
		return access{string(password), expiresNever}, nil
	}
	if err != nil {
		return access{}, fmt.Errorf("the display is locked because its Secret cannot be read: %w", err)
	}
	text := strings.TrimSpace(string(expiry))
	if !expiryPattern.MatchString(text) {
		return access{}, fmt.Errorf("the display is locked because the key %s of its Secret is none of now, never, + and seconds, and a unix time in seconds", vmconfig.DisplayExpiry)
	}
	return access{string(password), text}, nil
}
