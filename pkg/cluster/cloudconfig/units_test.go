package cloudconfig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

// TestMountUnitsAreNamedByTheirPath: systemd rejects a mount unit whose name is not its path.
func TestMountUnitsAreNamedByTheirPath(t *testing.T) {
	names := map[string]string{}
	for _, u := range mustRender(t, volumesParams()).Public.Systemd.Units {
		if !strings.HasSuffix(u.Name, ".mount") {
			continue
		}
		options, err := unit.DeserializeOptions(strings.NewReader(*u.Contents))
		if err != nil {
			t.Fatalf("%s: %s", u.Name, err)
		}
		for _, o := range options {
			if o.Name == "Where" {
				names[o.Value] = u.Name
			}
		}
	}
	for where, want := range map[string]string{
		"/data/data1": "data-data1.mount", "/data/fast-ssd": `data-fast\x2dssd.mount`, "/data/a_b.c": "data-a_b.c.mount",
		containerdDirectory: "var-lib-containerd.mount", kubeletDirectory: "var-lib-kubelet.mount",
	} {
		if names[where] != want {
			t.Errorf("%s is mounted by unit %q, want %q", where, names[where], want)
		}
	}
}

func TestEtcdCannotStartOnTheRootDisk(t *testing.T) {
	if unit := fileContent(t, mustRender(t, masterParams()), kubeletUnitFile); !strings.Contains(unit, " "+etcdDirectory+" ") {
		t.Errorf("the kubelet does not require the mount of %s:\n%s", etcdDirectory, unit)
	}
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			data := mustRender(t, params())
			root := t.TempDir()
			paths := writeUnits(t, root, data)
			// These stand for units of the image.
			write(t, root, "etc/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n", 0o644)
			for _, target := range strings.Fields("network network-online multi-user default basic sysinit shutdown umount local-fs local-fs-pre remote-fs remote-fs-pre") {
				write(t, root, "usr/lib/systemd/system/"+target+".target", "[Unit]\nDescription="+target+"\n", 0o644)
			}
			for _, binary := range strings.Fields("usr/bin/env usr/bin/containerd usr/lib/systemd/systemd-makefs opt/kvm-operator/download opt/kvm-operator/node-environment opt/kvm-operator/controllers opt/kvm-operator/etcd opt/kvm-operator/joining") {
				write(t, root, binary, "", 0o755)
			}
			args := append([]string{"verify", "--man=no", "--recursive-errors=no", "--root=" + root}, paths...)
			output, err := exec.Command(analyze, args...).CombinedOutput()
			if err != nil || len(output) > 0 {
				t.Errorf("systemd-analyze verify: %v\n%s", err, output)
			}
		})
	}
}

// writeUnits writes units and drop-ins below root and returns the paths of those that can be verified: a template only
// by an instance.
func writeUnits(t *testing.T, root string, data BootData) []string {
	write(t, root, kubeletUnitFile, fileContent(t, data, kubeletUnitFile), 0o600)
	paths := []string{kubeletUnitFile}
	for _, u := range data.Public.Systemd.Units {
		path := "etc/systemd/system/" + u.Name
		for _, d := range u.Dropins {
			write(t, root, path+".d/"+d.Name, *d.Contents, 0o644)
		}
		if u.Contents == nil {
			continue
		}
		write(t, root, path, *u.Contents, 0o644)
		paths = append(paths, "/"+strings.Replace(path, "@.", "@kubelet.", 1))
	}
	return paths
}

func write(t *testing.T, root, path, text string, mode os.FileMode) {
	t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
