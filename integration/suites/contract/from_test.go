package contract_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/smolpack"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// pack writes a packed machine into the target's directory of artifacts, and returns its path. Its layers are those of the image
// with a shell, and another one. smolvm itself has not written it.
func (target Target) pack(t *testing.T, name string, manifest map[string]any) string {
	t.Helper()
	m := smolpack.Machine{Manifest: map[string]any{"platform": "linux/" + runtime.GOARCH}}
	for key, value := range manifest {
		m.Manifest[key] = value
	}
	image, err := ocifixture.Alpine()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		from, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(from)
		if err = errors.Join(err, from.Close()); err != nil {
			t.Fatal(err)
		}
		m.Layers = append(m.Layers, content)
	}
	m.Layers = append(m.Layers, upper(t))
	content, err := smolpack.Pack(m)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(target.Artifacts, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// upper is a layer of a machine's overlay: it has a file, and a whiteout of overlayfs.
func upper(t *testing.T) []byte {
	t.Helper()
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	const text = "from an artifact\n"
	err := errors.Join(
		archive.WriteHeader(&tar.Header{Name: "./etc/packed", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}),
		func() error { _, err := io.WriteString(archive, text); return err }(),
		archive.WriteHeader(&tar.Header{Name: "./etc/group", Typeflag: tar.TypeChar}),
		archive.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return content.Bytes()
}

// leavesArtifactsOut says so if the target has no directory of artifacts.
func (target Target) leavesArtifactsOut() bool {
	if target.Artifacts == "" {
		fmt.Printf("LEFT OUT: packed machines of %s: it has no directory of artifacts\n", target.Kind)
	}
	return target.Artifacts == ""
}

// TestFrom asks targets that have a directory of artifacts what they take, and boots nothing.
func TestFrom(t *testing.T) {
	eachTarget(t, func(t *testing.T, target Target) {
		if target.leavesArtifactsOut() {
			return
		}
		target.pack(t, "good", map[string]any{"cpus": 2, "mem": 300})
		target.pack(t, "disks", map[string]any{"mode": "vm"})
		target.pack(t, "other", map[string]any{"platform": "linux/s390x"})
		in := func(name string) string { return filepath.Join(target.Artifacts, name) }
		content, err := os.ReadFile(in("good"))
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
		if err == nil {
			content[100] ^= 1
			err = os.WriteFile(in("damaged"), content, 0o600)
		}
		if err := errors.Join(err, os.Mkdir(in("folder"), 0o700), os.Symlink("/etc/passwd", in("out"))); err != nil {
			t.Fatal(err)
		}
		for name, r := range map[string]row{
			"a packed machine":          row{status: 200}.checked(has(map[string]any{"cpus": 2, "memoryMb": 300, "from": in("good"), "state": "created", "imageDigest": digest})).asking(in("good"), ""),
			"with its own sizes":        row{status: 200}.checked(has(map[string]any{"cpus": 1, "memoryMb": 128})).asking(in("good"), `,"cpus":1,"memoryMb":128`),
			"a machine with disks":      row{status: 400, code: api.CodeUnsupportedArtifact}.saying("mode vm", in("disks")).asking(in("disks"), ""),
			"another architecture":      row{status: 400, code: api.CodeUnsupportedArtifact}.saying("linux/s390x").asking(in("other"), ""),
			"a damaged file":            row{status: 400, code: api.CodeImageMalformed}.saying("its checksum is", in("damaged")).asking(in("damaged"), ""),
			"a file that is missing":    row{status: 400, code: api.CodeBadRequest}.saying("sidecar file not found", in("x")).asking(in("x"), ""),
			"a directory":               row{status: 400, code: api.CodeBadRequest}.saying("is a directory").asking(in("folder"), ""),
			"a link that leads out":     row{status: 400, code: api.CodeBadRequest}.saying("path escapes").asking(in("out"), ""),
			"a path that leads out":     row{status: 400, code: api.CodeBadRequest}.saying("..").asking(target.Artifacts+"/../machines", ""),
			"a file elsewhere":          row{status: 400, code: api.CodeBadRequest}.saying("not below").asking("/etc/passwd", ""),
			"a file and an image":       row{status: 400, code: api.CodeBadRequest}.saying("exclude each other").asking(in("good"), `,"image":"`+image+`"`),
			"a file, and no processors": row{status: 400, code: api.CodeBadRequest}.saying("cpus is 0").asking(in("good"), `,"cpus":0`),
		} {
			t.Run(name, func(t *testing.T) { r.run(t, target) })
		}
	})
}

// asking makes a row of the creation of a machine that is made of a file.
func (r row) asking(from, fields string) row {
	r.method, r.path, r.body = http.MethodPost, inMachines, fmt.Sprintf(`{"name":"{n}","from":%q,"storageGb":2,"overlayGb":2%s}`, from, fields)
	return r
}

// bootArtifact boots a packed machine. Its process, its environment and its sizes are those of the file.
func bootArtifact(t *testing.T, target Target) {
	t.Helper()
	if target.leavesArtifactsOut() {
		return
	}
	from := target.pack(t, "boot", map[string]any{
		"entrypoint": []string{"/bin/sh", "-c"}, "cmd": []string{"echo $GREETING in $(pwd) >/tmp/said; sleep 1000000"},
		"env": []string{"GREETING=hello", "PATH=/bin"}, "workdir": "/srv", "cpus": 1, "mem": 320,
	})
	g := target.guest(t, func(r *api.CreateRequest) { r.Image, r.From, r.Cmd, r.MemoryMB = "", from, nil, nil })
	if m := g.start(); m.MemoryMB != 320 || m.From != from || m.ImageDigest == "" {
		t.Errorf("the machine is %+v", m)
	}
	for command, want := range map[string]string{
		"until test -s /tmp/said; do sleep 0.1; done; cat /tmp/said": "hello in /srv",
		"cat /etc/packed": "from an artifact",
		"ls /etc/group 2>/dev/null || echo is gone": "is gone",
		"id -u": "0",
		"test $(free -m | sed -n 's/^Mem: *\\([0-9]*\\).*/\\1/p') -gt 256 && echo enough": "enough",
	} {
		if got := g.shell(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
