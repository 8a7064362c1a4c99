package microvm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/smolpack"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// putLarge makes an artifact of 32 GiB, which takes no room, and whose reading takes longer than any test. It returns its path.
func (n *node) putLarge() string {
	n.t.Helper()
	const hole = 32 << 30
	manifest, err := json.Marshal(map[string]any{"platform": "linux/" + runtime.GOARCH, "assets": map[string]any{"layers": []any{map[string]any{"path": smolpack.Name(0), "size": 5}}}})
	try(n.t, err)
	end := smolpack.Join(nil, nil, manifest)
	footer := end[len(manifest):]
	binary.LittleEndian.PutUint64(footer[28:], hole) // the size of the assets
	binary.LittleEndian.PutUint64(footer[36:], hole) // where the manifest begins
	path := filepath.Join(n.artifacts(), "large.smolmachine")
	try(n.t, os.MkdirAll(n.artifacts(), 0o700))
	file, err := os.Create(path)
	try(n.t, err)
	_, err = file.WriteAt(end, hole)
	try(n.t, errors.Join(err, file.Close()))
	return path
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// TestACreationIsInterrupted: to stop, delete or drain a machine does not wait until its artifact has been read.
func TestACreationIsInterrupted(t *testing.T) {
	for text, do := range map[string]func(m *Manager, ctx context.Context) error{
		"stop":   func(m *Manager, ctx context.Context) error { _, err := m.Stop(ctx, "a"); return err },
		"delete": func(m *Manager, ctx context.Context) error { return m.Delete(ctx, "a") },
		"drain":  func(m *Manager, ctx context.Context) error { return m.Drain(ctx) },
	} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			from := n.putLarge()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := m.Create(ctx, packedRequest("a", from))
				failed <- err
			}()
			await(t, "it reads", func() bool { return len(m.reading) == 1 })
			if got, err := m.Get(t.Context(), "a"); err != nil || got.Message != "the machine is being created: reading "+from {
				t.Errorf("meanwhile: %+v, %v", got, err)
			}
			soon, done := context.WithTimeout(t.Context(), 5*time.Second)
			defer done()
			if err := do(m, soon); err != nil && !api.IsNotFound(err) {
				t.Fatalf("it does not end the creation: %v", err)
			}
			if err := <-failed; api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "the creation was given up") {
				t.Errorf("the creation: %v", err)
			}
			if _, err := m.Get(t.Context(), "a"); !api.IsNotFound(err) || exists(n.directory("a")) || len(m.reading) > 0 {
				t.Errorf("something is left: %v", err)
			}
			_, err := m.Create(t.Context(), packedRequest("a", n.put("layer", nil))) // the name is free again
			try(t, err)
		})
	}
}

// TestFewArtifactsAreReadAtATime: others wait, as long as their requests do. Machines of images do not.
func TestFewArtifactsAreReadAtATime(t *testing.T) {
	n := newNode(t)
	m := n.open()
	large, small := n.putLarge(), n.put("layer", nil)
	_, err := m.Create(t.Context(), packedRequest("small", small))
	try(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for _, name := range []string{"a", "b"} {
		go func() {
			_, err := m.Create(ctx, packedRequest(name, large))
			ended <- err
		}()
	}
	await(t, "two are read", func() bool { return len(m.reading) == readers })
	for what, do := range map[string]func(context.Context) error{
		"a third creation":          func(ctx context.Context) error { _, err := m.Create(ctx, packedRequest("c", small)); return err },
		"a start that reads a file": func(ctx context.Context) error { _, err := m.Start(ctx, "small", api.StartRequest{}); return err },
	} {
		short, done := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := do(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		done()
	}
	_, err = m.Create(t.Context(), request("image"))
	try(t, err)
	cancel()
	for range readers {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a creation that was cancelled: %v", err)
		}
	}
	_, err = m.Create(t.Context(), packedRequest("c", small))
	try(t, err)
	_, err = m.Start(t.Context(), "small", api.StartRequest{})
	try(t, err)
}

// TestAStartReadsItsArtifactOnce: what the layers are taken from is compared with the digest, and nothing before that.
func TestAStartReadsItsArtifactOnce(t *testing.T) {
	n := newNode(t)
	m := n.open()
	from := n.put("layer", nil)
	was, err := m.Create(t.Context(), packedRequest("a", from))
	try(t, err)
	content, err := os.ReadFile(from)
	try(t, err)
	content[10] ^= 1
	try(t, os.WriteFile(from, content, 0o600))
	n.images.err = errors.New("the cache is broken")
	if err := start(t, m); err == nil || !strings.Contains(err.Error(), "the cache is broken") {
		t.Errorf("before the layers are read: %v", err)
	}
	n.images.err = nil
	is := digestOf(t, from)
	if err := start(t, m); api.CodeOf(err) != api.CodeBadRequest || !strings.Contains(err.Error(), "it is "+is+", and machine 'a' was created with "+was.ImageDigest+"; put the former file back") {
		t.Errorf("a file that is damaged since: %v", err)
	}
}
