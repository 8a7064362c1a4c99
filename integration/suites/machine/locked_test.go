package machine_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// TestQEMUIsNotRoot prints what a guest that takes over its QEMU has access to: user, capabilities, open files, mounts
// and root directory.
func TestQEMUIsNotRoot(t *testing.T) {
	t.Parallel()
	share := vm.Directory(t)
	v := vm.Start(t, vm.Options{
		Pod: podnet.NewHost(t).NewPod(t, podnet.PodOptions{}), Args: []string{"--disk=rootfs:64M", "--etcd=" + share},
		Image: vm.Tiny(t).With("tiny.share=etcdshare"),
	})
	v.Await(t, 0, "tiny: ready", tinyBoots)
	process := fmt.Sprintf("/proc/%d/", v.Status(t).PID)
	status := read(t, process+"status")
	for _, line := range regexp.MustCompile(`(?m)^(Uid|Gid|Groups|Cap\w+|NoNewPrivs|Seccomp):.*$`).FindAllString(status, -1) {
		t.Log(line)
	}
	user := fmt.Sprint(keeper.QEMUUser)
	for _, want := range []string{
		`Uid:(\s+` + user + `){4}\n`, `Gid:(\s+` + user + `){4}\n`, `Groups:\s*\n`, `CapInh:\s+0+\n`, `CapPrm:\s+0+\n`, `CapEff:\s+0+\n`,
		`CapBnd:\s+0+\n`, `CapAmb:\s+0+\n`, `NoNewPrivs:\s+1\n`, `Seccomp:\s+2\n`,
	} {
		if !regexp.MustCompile(want).MatchString(status) {
			t.Errorf("there is no %q in\n%s", want, status)
		}
	}
	expectOpen(t, process)
	expectMounts(t, process, v.Directory, share)
	for _, namespace := range []string{"mnt", "net", "ipc", "uts"} {
		if own, runners := link(t, process+"ns/"+namespace), link(t, fmt.Sprintf("/proc/%d/ns/%s", v.PID(), namespace)); own == runners {
			t.Errorf("it has the runner's namespace %s", own)
		}
	}
	if _, err := os.Stat(filepath.Join(v.Directory, "run", "ignition.json")); err == nil {
		t.Error("the merged boot data is left behind")
	}
	v.Terminate(t)
	expectEnd(t, v.Wait(t, goesDown), keeper.ReasonPoweredDown, "the guest shut down", "")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func link(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// expectOpen checks the open files.
func expectOpen(t *testing.T, process string) {
	t.Helper()
	entries, err := os.ReadDir(process + "fd")
	if err != nil {
		t.Fatal(err)
	}
	allowed := regexp.MustCompile(`^(pipe:|socket:|anon_inode:|/dev/(null|urandom|net/tun|kvm)$|/memfd:|.*/rootfs\.img$|.*\.kvm-operator\.lock$|.*/vm\d+$)`)
	open := map[string]int{}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(process, "fd", e.Name())); err == nil { // otherwise it was closed since then
			open[target]++
		}
	}
	for _, target := range slices.Sorted(maps.Keys(open)) {
		t.Logf("open: %s (%d)", target, open[target])
		if !allowed.MatchString(target) {
			t.Errorf("it has %s open", target)
		}
	}
}

// expectMounts checks the mounts and the entries of the root directory.
func expectMounts(t *testing.T, process, directory, share string) {
	t.Helper()
	for line := range strings.Lines(read(t, process+"mountinfo")) {
		fields := strings.Fields(line)
		path, options := fields[4], strings.Split(fields[5], ",")
		t.Logf("mount: %s %s", path, fields[5])
		if path != share && path != "/proc" && !slices.Contains(options, "ro") {
			t.Errorf("%s is writable", path)
		}
		if !slices.Contains(options, "nosuid") {
			t.Errorf("%s has setuid programs", path)
		}
	}
	entries, err := os.ReadDir(process + "root")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Logf("root: /%s", e.Name())
	}
	for _, hidden := range []string{filepath.Join(directory, "state"), filepath.Join(directory, "run", keeper.SocketName), "/var", "/root"} {
		if _, err := os.Stat(process + "root" + hidden); err == nil {
			t.Errorf("it sees %s", hidden)
		}
	}
}
