package microvm

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/smolpack"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
)

// put packs a machine with one layer, and returns the path of the file.
func (n *node) put(content string, manifest map[string]any) string {
	n.t.Helper()
	all := map[string]any{"platform": "linux/" + runtime.GOARCH}
	for key, value := range manifest {
		all[key] = value
	}
	text, err := smolpack.Pack(smolpack.Machine{Layers: [][]byte{[]byte(content)}, Manifest: all})
	if err != nil {
		n.t.Fatal(err)
	}
	path := filepath.Join(n.artifacts(), "web.smolmachine")
	// As the documentation says: a file appears under its name once it is complete.
	if err := errors.Join(os.MkdirAll(n.artifacts(), 0o700), os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// packedRequest is a small machine that is made of a file.
func packedRequest(name, from string) api.CreateRequest {
	r := request(name)
	r.Image, r.From = "", from
	return r
}

func TestAMachineIsMadeOfAnArtifact(t *testing.T) {
	n := newNode(t)
	from := n.put("layer", map[string]any{"cpus": 3, "mem": 768, "entrypoint": []string{"/bin/web"}, "cmd": []string{"-v"}, "env": []string{"A=1"}, "workdir": "/srv", "user": "33", "network": true})
	m := n.open()
	created, err := m.Create(t.Context(), packedRequest("a", from))
	try(t, err)
	if created.CPUs != 3 || created.MemoryMB != 768 || created.From != from || created.Image != "" || created.Network || created.ImageDigest != digestOf(t, from) || len(n.images.asked) > 0 {
		t.Errorf("created: %+v, asked for %v", created, n.images.asked)
	}
	for range 2 { // the second server finds all of it in the record
		_, err = m.Start(t.Context(), "a", api.StartRequest{})
		try(t, err)
		plan, err := instance.ReadPlan(n.directory("a"))
		try(t, err)
		if plan.CPUs != 3 || plan.MemoryMB != 768 || plan.Image != created.ImageDigest {
			t.Errorf("the plan is %+v", plan)
		}
		_, err = m.Stop(t.Context(), "a")
		try(t, errors.Join(err, m.Close()))
		m = n.open()
	}
	if p := n.images.added.Process; strings.Join(p.Arguments(), " ") != "/bin/web -v" || p.Directory != "/srv" || p.User != "33" || p.Environment[0] != "A=1" || n.images.layers != 1 || len(n.images.asked) != 1 {
		t.Errorf("the image is %+v with %d layers, asked for %v", n.images.added, n.images.layers, n.images.asked)
	}
	r := packedRequest("b", from)
	r.CPUs, r.MemoryMB = pointer(2), pointer(int64(512))
	if own, err := m.Create(t.Context(), r); err != nil || own.CPUs != 2 || own.MemoryMB != 512 {
		t.Errorf("with its own sizes: %+v, %v", own, err)
	}
	from = n.put("other", map[string]any{"cpus": 0, "mem": 0})
	if plain, err := m.Create(t.Context(), packedRequest("c", from)); err != nil || plain.CPUs != api.DefaultCPUs || plain.MemoryMB != api.DefaultMemoryMB {
		t.Errorf("with an artifact that does not say: %+v, %v", plain, err)
	}
}

// TestAnArtifactThatIsReplaced is another one for the next machine. A machine that exists stays what it is, also if the
// request that made it comes again, and starts as long as its image is in the cache.
func TestAnArtifactThatIsReplaced(t *testing.T) {
	n := newNode(t)
	m := n.open()
	from := n.put("first", map[string]any{"cpus": 2})
	first, err := m.Create(t.Context(), packedRequest("a", from))
	try(t, err)
	try(t, start(t, m))
	n.put("second", map[string]any{"cpus": 4})
	again, err := m.Create(t.Context(), packedRequest("a", from))
	try(t, err)
	second, err := m.Create(t.Context(), packedRequest("b", from))
	try(t, err)
	if again.ImageDigest != first.ImageDigest || again.CPUs != 2 || second.ImageDigest == first.ImageDigest || second.CPUs != 4 {
		t.Errorf("first %+v, again %+v, second %+v", first, again, second)
	}
	try(t, stop(t, m))
	try(t, start(t, m))
	try(t, stop(t, m))
	n.images.cache = map[string]bool{} // pruned
	for _, text := range []string{"was created with sha256", "sidecar file not found"} {
		if err := start(t, m); api.CodeOf(err) != api.CodeBadRequest || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), from) {
			t.Errorf("without the first file, wants %q: %v", text, err)
		}
		try(t, os.RemoveAll(from))
	}
	if again, err = m.Create(t.Context(), packedRequest("a", from)); err != nil || again.ImageDigest != first.ImageDigest {
		t.Errorf("the repeated request, without a file: %+v, %v", again, err)
	}
	n.put("first", map[string]any{"cpus": 2})
	try(t, start(t, m))
	for name, change := range map[string]func(*api.CreateRequest){
		"another file": func(r *api.CreateRequest) { r.From += "2" }, "an image": func(r *api.CreateRequest) { r.Image, r.From = "web", "" },
		"sizes that are named": func(r *api.CreateRequest) { r.CPUs = pointer(2) },
	} {
		r := packedRequest("a", from)
		change(&r)
		if _, err := m.Create(t.Context(), r); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadArtifacts(t *testing.T) {
	damage := func(path string) error {
		content, err := os.ReadFile(path)
		if err == nil {
			content[20] ^= 1
			err = os.WriteFile(path, content, 0o600)
		}
		return err
	}
	link := func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) }
	folder := func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }
	for name, test := range map[string]struct {
		manifest map[string]any
		change   func(path string) error
		code     api.Code
		says     string
	}{
		"one that is missing":   {change: os.Remove, code: api.CodeBadRequest, says: "sidecar file not found; copy it below"},
		"a link that leads out": {change: link, code: api.CodeBadRequest, says: "path escapes"},
		"a directory":           {change: folder, code: api.CodeBadRequest, says: "is a directory"},
		"one that is damaged":   {change: damage, code: api.CodeImageMalformed, says: "its checksum is"},
		"one of the mode vm":    {manifest: map[string]any{"mode": "vm"}, code: api.CodeUnsupportedArtifact, says: "mode vm"},
		"another architecture":  {manifest: map[string]any{"platform": "linux/s390x"}, code: api.CodeUnsupportedArtifact, says: "linux/s390x"},
		"memory of 1 MiB":       {manifest: map[string]any{"mem": 1}, code: api.CodeImageMalformed, says: "1 MiB of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			from := n.put("layer", test.manifest)
			if test.change != nil {
				try(t, test.change(from))
			}
			m := n.open()
			_, err := m.Create(t.Context(), packedRequest("a", from))
			if api.CodeOf(err) != test.code || test.code.Status() != 400 || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), from) {
				t.Errorf("the error is %v (%s)", err, api.CodeOf(err))
			}
			if _, err := m.Get(t.Context(), "a"); !api.IsNotFound(err) || exists(n.directory("a")) {
				t.Errorf("something is left: %v", err)
			}
			// The name is free again.
			try(t, os.RemoveAll(from))
			_, err = m.Create(t.Context(), packedRequest("a", n.put("layer", nil)))
			try(t, err)
		})
	}
}

func TestArtifactsAtStart(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code api.Code
		says string
	}{
		"malformed layers":     {ociimage.MalformedError{Reason: "a layer leads out"}, api.CodeImageMalformed, "pack it again"},
		"no room":              {&disk.FullError{Path: "/images"}, api.CodeDiskFull, "/images"},
		"an error of the disk": {errors.New("input/output error"), api.CodeInternal, "from: input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			m := n.open()
			_, err := m.Create(t.Context(), packedRequest("a", n.put("layer", nil)))
			try(t, err)
			n.images.err = test.err
			err = start(t, m)
			if cmp.Or(api.CodeOf(err), api.CodeInternal) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v (%s)", err, api.CodeOf(err))
			}
			if got := state(t, m, "a"); got != api.StateCreated || n.keepers.count() > 0 {
				t.Errorf("the machine is %s, and has %d processes", got, n.keepers.count())
			}
		})
	}
}

// digestOf returns what the digest of a file should be.
func digestOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	try(t, err)
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content))
}

// TestCreationWithAnArtifactIsCutOff at each step: the next server has the requested machine, or nothing.
func TestCreationWithAnArtifactIsCutOff(t *testing.T) {
	var from string
	do := operation{before: func(*testing.T, *Manager) {}, do: func(t *testing.T, m *Manager) error {
		_, err := m.Create(t.Context(), packedRequest("a", from))
		return err
	}}
	for _, at := range []string{"create: directory", "create: disks", "create: record"} {
		t.Run(at, func(t *testing.T) {
			n := newNode(t)
			from = n.put("layer", map[string]any{"cpus": 2})
			cpus, digest := 2, digestOf(t, from)
			m := n.open()
			crash(t, m, do, at)
			n.put("other", map[string]any{"cpus": 4})
			next := n.open()
			if _, err := next.Get(t.Context(), "a"); api.IsNotFound(err) {
				cpus, digest = 4, digestOf(t, from)
			} else if err != nil || at != "create: record" {
				t.Errorf("the machine is there, and may be in part: %v", err)
			}
			try(t, do.do(t, next))
			found, err := next.Get(t.Context(), "a")
			try(t, err)
			if found.CPUs != cpus || found.ImageDigest != digest {
				t.Errorf("the machine is %+v, and not of %s", found, digest)
			}
		})
	}
}
