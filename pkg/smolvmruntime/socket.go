package smolvmruntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// errStranger says that smolvm's socket is another program's. It was sent nothing.
var errStranger = errors.New("another program listens on the socket, not the smolvm of this runtime")

// socket is smolvm's. Other programs of the node may listen there. Another smolvm, which was started by hand, does not know
// the machines of this one, which would seem to be lost.
type socket struct {
	path string
	// child returns the process that the agent has started; 0 if there is none. Nil if another program starts smolvm.
	child func() int
}

// Dial connects to smolvm.
func (s socket) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: probeTime}
	connection, err := dialer.DialContext(ctx, "unix", s.path)
	if err != nil || s.child == nil {
		return connection, err
	}
	if err := s.check(connection); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// transport returns what makes requests to smolvm. As many connections are kept as there may be calls at a time.
func (s socket) transport() *http.Transport {
	return &http.Transport{
		DialContext: s.Dial, MaxIdleConnsPerHost: maxCalls, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswerHeader, DisableCompression: true,
	}
}

// check compares the process that listens, which the kernel names (unix(7), SO_PEERCRED), with the child. The command may
// be a script that starts smolvm.
func (s socket) check(connection net.Conn) error {
	raw, ok := connection.(*net.UnixConn)
	if !ok {
		return errStranger
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return fmt.Errorf("finding who listens on the socket: %w", err)
	}
	var peer *unix.Ucred
	var failure error
	if err := control.Control(func(descriptor uintptr) {
		peer, failure = unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || failure != nil {
		return fmt.Errorf("finding who listens on the socket: %w", errors.Join(err, failure))
	}
	if child := s.child(); child == 0 || !descends(int(peer.Pid), child) {
		return errStranger
	}
	return nil
}

// maxGenerations is how many processes may be between the child and smolvm.
const maxGenerations = 8

// descends returns whether a process is another one, or descends from it.
func descends(pid, ancestor int) bool {
	for range maxGenerations {
		if pid == ancestor {
			return true
		}
		if pid <= 1 {
			return false
		}
		pid = parent(pid)
	}
	return false
}

// parent returns the parent of a process; 0 if there is none. It is the second field behind the name, which may hold
// parentheses and spaces (proc(5)).
func parent(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	number, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return number
}
