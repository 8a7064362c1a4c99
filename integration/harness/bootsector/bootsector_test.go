package bootsector

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGuestIsThatOfItsSource: guest.bin is what guest.asm says.
func TestGuestIsThatOfItsSource(t *testing.T) {
	for _, program := range []string{"as", "objcopy"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v; on Debian: apt-get install binutils", err)
		}
	}
	object, binary := filepath.Join(t.TempDir(), "guest.o"), filepath.Join(t.TempDir(), "guest.bin")
	for _, command := range [][]string{{"as", "--32", "-o", object, "guest.asm"}, {"objcopy", "-O", "binary", object, binary}} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, output)
		}
	}
	built, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(built, guest) {
		t.Error("guest.bin is not what guest.asm says: run the command at the top of guest.asm")
	}
}
