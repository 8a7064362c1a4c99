package live_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

func TestDiskGrowsUnderTheGuest(t *testing.T) {
	t.Parallel()
	disk := qemu.Disk{Serial: "data", Path: filepath.Join(t.TempDir(), "data.img")}
	do(t, os.WriteFile(disk.Path, make([]byte, mib), 0o600))
	m := tiny(t, "tiny.disk=data") // without it the guest has no driver
	m.Disks = []qemu.Disk{disk}
	g := start(t, m)
	g.boot(t)
	sectors := func() string {
		after := g.said()
		g.tell(t, "sh echo sectors=$(cat /sys/class/block/vda/size)")
		return g.expect(t, after, `^sectors=(\d+)`)
	}
	if got := sectors(); got != "2048" {
		t.Fatalf("the guest sees %s sectors", got)
	}
	do(t, g.BlockResize(t.Context(), disk.NodeName(), 8*mib))
	g.await(t, "the guest sees the new size", func() bool { return sectors() == "16384" })
	if info, err := os.Stat(disk.Path); err != nil || info.Size() != 8*mib {
		t.Errorf("the file is %v, %v", info, err)
	}
	refused(t, "an unknown disk", g.BlockResize(t.Context(), "disk-other", 8*mib), "disk-other")
}
