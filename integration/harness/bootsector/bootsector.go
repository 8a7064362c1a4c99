// Package bootsector has the smallest guest: one sector that boots in a second under emulation, counts its starts on its
// disk, and obeys its serial console. guest.asm describes it.
package bootsector

import (
	_ "embed" // for the guest
	"fmt"
	"os"
	"strings"
)

//go:embed guest.bin
var guest []byte

// What a user types at the guest's console.
const (
	PowerOff          = "o"
	IgnorePowerButton = "i"
	FillDisk          = "w"
)

// chunk is how much the guest writes at a time, from as far on its disk.
const chunk = 32 << 10

// Filled is what the guest says when it was ordered to fill a disk of this size and has written all of it: the order, each
// chunk, and the end.
func Filled(size int64) string { return strings.Repeat(FillDisk, 1+int((size-chunk)/chunk)) + "E" }

// minSize is the size of the smallest disk: the guest, and its counter.
const minSize = 1024

// Write creates a file of a size, in bytes, at least 1024, that is the disk of a guest that was not started yet.
func Write(file string, size int64) error {
	if size < minSize {
		return fmt.Errorf("a disk of %d bytes is too small: the guest needs %d", size, minSize)
	}
	if err := os.WriteFile(file, guest, 0o600); err != nil {
		return err
	}
	return os.Truncate(file, size)
}

// Booted is what the guest says when it starts for the nth time, from 1 to 26.
func Booted(nth int) string { return fmt.Sprintf("boot %c", 'A'+nth-1) }
