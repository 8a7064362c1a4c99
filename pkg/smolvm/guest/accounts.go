package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
)

const (
	maxID     = 1<<31 - 1 // as in Docker; others are used for their own purposes
	maxGroups = 65536     // NGROUPS_MAX of the Linux kernel
)

// account is who a process runs as.
type account struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

// account looks up a user in the image's own files.
func (r *Root) account(user string) (account, error) {
	var files [2][]byte
	for i, name := range []string{"/etc/passwd", "/etc/group"} {
		text, err := r.small(name, maxAccounts)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return account{}, fmt.Errorf("looking up the user: %w", err)
		}
		files[i] = text
	}
	return findAccount(user, string(files[0]), string(files[1]))
}

// findAccount finds a user as the OCI image specification has it: user, uid, user:group, uid:gid, uid:group or user:gid.
// Numbers need no entry. A group that is named is the only one; else there are those of which the user is a member. passwd
// and group have the form of passwd(5) and group(5), and lines of another form are ignored.
func findAccount(user, passwd, group string) (account, error) {
	name, groupName, hasGroup := strings.Cut(user, ":")
	if name == "" {
		name = "0"
	}
	a, login, err := findUser(name, passwd)
	if err != nil {
		return account{}, err
	}
	if hasGroup && groupName != "" {
		a.gid, err = findGroup(groupName, group)
		return a, err
	}
	for fields := range entries(group, 4) {
		id, ok := number(fields[2])
		if ok && login != "" && slices.Contains(strings.Split(fields[3], ","), login) && len(a.groups) < maxGroups {
			a.groups = append(a.groups, id)
		}
	}
	return a, nil
}

// findUser also returns the user's name, which a number may not have.
func findUser(name, passwd string) (a account, login string, err error) {
	id, isNumber := number(name)
	for fields := range entries(passwd, 7) {
		uid, ok := number(fields[2])
		gid, ok2 := number(fields[3])
		if ok && ok2 && (fields[0] == name || isNumber && uid == id) {
			return account{uid: uid, gid: gid, home: fields[5]}, fields[0], nil
		}
	}
	if !isNumber {
		return account{}, "", agentwire.Errorf(agentwire.CodeNotFound, "the image has no user %q", name)
	}
	return account{uid: id}, "", nil
}

func findGroup(name, group string) (uint32, error) {
	id, isNumber := number(name)
	for fields := range entries(group, 4) {
		gid, ok := number(fields[2])
		if ok && (fields[0] == name || isNumber && gid == id) {
			return gid, nil
		}
	}
	if !isNumber {
		return 0, agentwire.Errorf(agentwire.CodeNotFound, "the image has no group %q", name)
	}
	return id, nil
}

// entries yields the fields of the lines that have as many of them.
func entries(text string, count int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
			if len(fields) == count && fields[0] != "" && !yield(fields) {
				return
			}
		}
	}
}

func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n <= maxID
}
