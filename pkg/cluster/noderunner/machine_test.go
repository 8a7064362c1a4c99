package noderunner

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

func worker() (Settings, prepared) {
	s := Settings{
		Settings: keeper.Settings{Name: "worker-w1", Run: "/run/kvm-operator"}, Source: osimage.Source{Image: osimage.FlatcarFrom(osimage.FlatcarMirror, "stable", "4459.2.1")},
		CPUs: 4, Memory: 3072, State: "/usr/code/rootfs",
		Disks:   []Disk{{Serial: "rootfs", Size: 5 << 30}, {Serial: "dockerfs", Size: 50 << 30}, {Serial: "kubeletfs", Size: 5 << 30}},
		Shares:  []Share{{Tag: "logs", Path: "/data/logs"}},
		Network: NetworkPod,
	}
	return s, prepared{
		image:  osimage.Local{Kernel: "/images/vmlinuz", Initrd: "/images/initrd"},
		choice: qemu.Choice{Accelerator: qemu.KVM},
		// The first descriptors are those of locks.
		descriptors: map[string]int{"rootfs": 5, "dockerfs": 6, "kubeletfs": 7, etcdTag: 8, serialImage: 9},
		card:        qemu.Network{Tap: "tap-guest", MAC: "0a:58:0a:00:00:07", MTU: 1450},
	}
}

func TestMachine(t *testing.T) {
	for name, change := range map[string]func(*Settings, *prepared){
		"worker": func(*Settings, *prepared) {},
		"master": func(s *Settings, _ *prepared) {
			s.Name, s.Shares, s.Etcd = "master-m1", nil, "/etc/kubernetes/data/etcd"
		},
		"master with etcd on a block device": func(s *Settings, p *prepared) {
			s.Name, s.Shares, s.Etcd = "master-m1", nil, "/dev/etcd"
			p.etcd = etcdfiles.Store{Disk: s.Etcd, Device: true}
		},
		"master with a disk for etcd": func(s *Settings, p *prepared) {
			s.Name, s.Shares, s.Etcd = "master-m1", nil, "/etc/kubernetes/data/etcd"
			p.etcd = etcdfiles.Store{Disk: s.Etcd + "/etcd.img"}
		},
		"worker whose connections the runner carries": func(s *Settings, p *prepared) {
			s.Network, p.card = NetworkProxy, qemu.Network{SocketDescriptor: 9, MAC: "02:00:00:00:00:01", MTU: 1450}
		},
		"own image without KVM behind user network": func(s *Settings, p *prepared) {
			s.Network, s.Image.IgnitionKey, s.Image.KernelArguments = NetworkUser, "", []string{"quiet"}
			p.choice.Accelerator, p.card, p.image.RootFS = qemu.TCG, qemu.Network{}, "/images/root.squashfs"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := worker()
			change(&s, &p)
			arguments, err := s.Complete(machine(s, p)).Args()
			if err != nil {
				t.Fatal(err)
			}
			own, err := json.MarshalIndent(guestOwn(s, p.etcd), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			compare(t, strings.ReplaceAll(name, " ", "-"), strings.Join(arguments, "\n")+"\n\n"+string(own)+"\n")
		})
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; UPDATE=1 writes it", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-%s +got):\n%s", path, diff)
	}
}

func TestGoldenFilesAreAllUsed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) != 6 {
		t.Errorf("there are %v, want one for each machine (%v)", files, err)
	}
}
