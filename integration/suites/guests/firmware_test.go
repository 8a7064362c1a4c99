package guests_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// TestSecureBootRefusesAnUnsignedGuest: the firmware of a machine with Secure Boot does not start a boot loader that is not
// signed by a key that it knows.
func TestSecureBootRefusesAnUnsignedGuest(t *testing.T) {
	s := newStage(t, "unsigned")
	s.patience = 3 * time.Minute // an emulated UEFI is slow
	s.operate(t)
	vm, _ := s.newSecure(t, "unsigned", "cloud.img", "256Mi", "900Mi")
	s.start(t, vm)
	s.says(t, vm, "Access Denied")
}

// TestFirmwareKeepsWhatASignedGuestWrites: a machine with Secure Boot starts Debian's signed loaders and kernel, which locks
// itself down. The guest writes a boot entry, and the firmware starts that entry when the machine runs on another node,
// because its variables are in a claim.
func TestFirmwareKeepsWhatASignedGuestWrites(t *testing.T) {
	isLong(t)
	s := newStage(t, "signed")
	s.patience = 4 * time.Minute // emulated, the firmware and the kernel that unpacks itself are slow
	s.operate(t)
	vm, disk := s.newSecure(t, "signed", "signed.img", "512Mi", "66Mi")
	vm.Spec.CloudInit, vm.Spec.VM.PowerdownTimeout = nil, 120
	s.start(t, vm)
	s.isSecured(t, vm)
	before := s.pod(t, vm)

	const number, variable = 0x42, "%s-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	name := fmt.Sprintf("Boot%04X", number)
	entry := bootEntry("written by the guest", firstPartition(t, disk), `\EFI\BOOT\BOOTX64.EFI`)
	s.tell(t, vm, fmt.Sprintf("sh cd /sys/firmware/efi/efivars && printf '%s' >%s && printf '%s' >%s\n",
		octal(entry), fmt.Sprintf(variable, name), octal(efiVariable([]uint16{number})), fmt.Sprintf(variable, "BootOrder")))
	s.says(t, vm, "tiny: exit=0")
	s.set(t, vm, func(vm *v1.VM) { vm.State = v1.StateStopped })
	s.becomes(t, vm, "stopped", isStopped)

	lab.Change(t, s.Lab, vm, func(vm *v1.VirtualMachine) {
		vm.Spec.NodeSelector = map[string]v1.LabelValue{corev1.LabelHostname: v1.LabelValue(s.otherNode(t, before.Spec.NodeName))}
		vm.Spec.VM.State = v1.StateRunning
	})
	s.says(t, vm, fmt.Sprintf("BdsDxe: starting %s %q", name, "written by the guest"))
	s.isSecured(t, vm)
	s.says(t, vm, fmt.Sprintf("boot=%04x", number))
	if after := s.pod(t, vm); after.Spec.NodeName == before.Spec.NodeName {
		t.Errorf("the machine is on %s still", after.Spec.NodeName)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "runner-data-" + vm.Name + "-0"}}
	if s.Get(t, claim); claim.Spec.VolumeName != s.data {
		t.Errorf("the firmware's variables are in the volume %q, want %q", claim.Spec.VolumeName, s.data)
	}
}

// newSecure returns a machine with Secure Boot and a copy of a disk, which it makes a volume of, and the file of the copy.
func (s stage) newSecure(t *testing.T, name, image, ram, size string) (vm *v1.VirtualMachine, file string) {
	t.Helper()
	file = filepath.Join(directory(t), image)
	if err := blockdevice.Copy(t.Context(), filepath.Join(tools, "guest", image), file); err != nil {
		t.Fatalf("%v; run `make tools`", err)
	}
	s.Create(t, attach(t, file).Volume(name, size))
	vm = s.newMachine(name, ram, size)
	vm.Spec.VM.Firmware, vm.Spec.VM.Display, vm.Spec.VM.Networks, vm.Spec.VM.PowerdownTimeout = v1.FirmwareSecure4M, &v1.Display{}, []v1.Network{}, 2
	return vm, file
}

// isSecured waits until the signed guest has started, and checks that its firmware and its kernel refuse what is unsigned.
func (s stage) isSecured(t *testing.T, vm *v1.VirtualMachine) {
	t.Helper()
	begun := time.Now()
	s.says(t, vm, "tiny: uefi secureboot=01 lockdown=none [integrity] confidentiality boot=")
	s.says(t, vm, "tiny: ready")
	s.becomes(t, vm, "running", runs)
	t.Logf("the signed guest has started after %s", time.Since(begun).Round(time.Second))
}

// otherNode returns the name of a node that is not this one.
func (s stage) otherNode(t *testing.T, name string) string {
	t.Helper()
	for _, node := range s.cluster.Nodes() {
		if node.Name() != name {
			return node.Name()
		}
	}
	t.Fatalf("there is no node but %s", name)
	return ""
}

// partition is the first part of an entry of a GPT (UEFI 2.10, 5.3.3).
type partition struct {
	Type, ID    [16]byte
	First, Last uint64 // sectors
}

// firstPartition returns the first partition of a disk whose entries follow the header of the GPT.
func firstPartition(t *testing.T, disk string) (first partition) {
	t.Helper()
	content, err := os.Open(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if _, err := content.Seek(2*512, 0); err != nil {
		t.Fatal(err)
	}
	if err := binary.Read(content, binary.LittleEndian, &first); err != nil {
		t.Fatal(err)
	}
	return first
}

// bootEntry returns a variable Boot####, which has the firmware start a file of the first partition of any disk that has
// this partition (UEFI 2.10, 3.1.3, 10.3.5.1 and 10.3.5.4).
func bootEntry(description string, p partition, file string) []byte {
	name := append(utf16.Encode([]rune(file)), 0)
	path := little(
		[]uint8{4, 1}, uint16(42), uint32(1), p.First, p.Last-p.First+1, p.ID, []uint8{2, 2}, // a partition of a GPT
		[]uint8{4, 4}, uint16(4+2*len(name)), name, // a file
		[]uint8{0x7f, 0xff}, uint16(4), // the end
	)
	const active = 1
	return efiVariable(uint32(active), uint16(len(path)), append(utf16.Encode([]rune(description)), 0), path)
}

// efiVariable returns what Linux writes to the file of a variable: attributes and values. It is not volatile, and boot
// services and the operating system may use it.
func efiVariable(values ...any) []byte { return append(little(uint32(7)), little(values...)...) }

// little returns values of fixed sizes in little endian.
func little(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		_ = binary.Write(&b, binary.LittleEndian, v) // fails for other values alone
	}
	return b.Bytes()
}

// octal returns bytes as an argument of the shell's printf.
func octal(content []byte) string {
	var b strings.Builder
	for _, c := range content {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return b.String()
}
