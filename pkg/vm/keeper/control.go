package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// SocketName is the name of the control socket in the directory of sockets.
const SocketName = "runner.sock"

// maxCommand bounds a QMP command from outside, in bytes.
const maxCommand = 1 << 20

// consoleUpgrade is the protocol of an attached console: bytes in both directions.
const consoleUpgrade = "console"

// modeOfRun lets QEMU's user pass through the directory to what it reads at its start, but not list it: if the keeper
// may not create a mount namespace, QEMU finds the files here. Only root may use the sockets.
const modeOfRun = 0o711

// serveControl serves `runner status`, `release`, `qmp` and `console` by HTTP on a unix socket, which only root can
// open.
func (k *Keeper) serveControl() (io.Closer, error) {
	if err := os.MkdirAll(k.settings.Run, modeOfRun); err != nil {
		return nil, BecauseOfDisk(err)
	}
	// The directory may have been created with access for all.
	if err := os.Chmod(k.settings.Run, modeOfRun); err != nil {
		return nil, fmt.Errorf("closing the directory of sockets to others: %w", err)
	}
	path := k.settings.socket()
	if err := freeSocket(path); err != nil {
		return nil, Failf(ReasonDiskLocked, "opening the control socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protecting the control socket: %w", err), listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", k.answerStatus)
	mux.HandleFunc("POST /release", k.answerRelease)
	mux.HandleFunc("POST /qmp", k.answerQMP)
	mux.HandleFunc("GET /console", k.answerConsole)
	mux.HandleFunc("POST /console", k.answerTyping)
	if k.guest.Routes != nil {
		k.guest.Routes(mux)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			k.log.Error("The control socket stopped", "error", err)
		}
	}()
	return server, nil
}

// freeSocket removes a socket that an earlier keeper left, and fails if a running one serves it.
func freeSocket(path string) error {
	if connection, err := net.Dial("unix", path); err == nil {
		_ = connection.Close()
		return fmt.Errorf("another runner answers on %s", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (k *Keeper) answerStatus(w http.ResponseWriter, request *http.Request) {
	answer(w, k.guest.Status(request.Context()))
}

func (k *Keeper) answerRelease(w http.ResponseWriter, _ *http.Request) {
	k.Release()
	answer(w, k.board.get())
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	// The client may have disconnected, and then needs no response.
	_ = json.NewEncoder(w).Encode(value)
}

// answerQMP passes a command to QEMU and returns its response.
func (k *Keeper) answerQMP(w http.ResponseWriter, request *http.Request) {
	g := k.running()
	if g == nil {
		http.Error(w, "the machine does not run: "+string(k.board.get().State), http.StatusConflict)
		return
	}
	command, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxCommand))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(request.Context(), 30*time.Second)
	defer cancel()
	result, err := g.connection().Raw(ctx, command)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	answer(w, result)
}

func (k *Keeper) running() *guest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live
}

// answerConsole sends what the console kept and, if the client requests the protocol "console", all further output, and
// types what the client sends.
func (k *Keeper) answerConsole(w http.ResponseWriter, request *http.Request) {
	if request.Header.Get("Upgrade") != consoleUpgrade {
		_, _ = w.Write(k.console.tail(consoleKept))
		return
	}
	connection, err := Accept(w, consoleUpgrade)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	client := NewOutlet(connection)
	detach := k.console.attach(client)
	// This lasts until the client disconnects; closing the connection ends a write to a client that does not read.
	_, _ = io.Copy(typist{k.console}, connection)
	detach()
	_ = connection.Close()
	_ = client.Close()
}

// answerTyping types the body.
func (k *Keeper) answerTyping(w http.ResponseWriter, request *http.Request) {
	if _, err := io.Copy(typist{k.console}, http.MaxBytesReader(w, request.Body, maxCommand)); err != nil {
		http.Error(w, "the machine takes no keystrokes: "+err.Error(), http.StatusConflict)
	}
}

// typist types what an attached client sends.
type typist struct{ console *console }

func (t typist) Write(p []byte) (int, error) {
	if err := t.console.typeIn(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
