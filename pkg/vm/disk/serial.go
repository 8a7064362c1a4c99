package disk

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	// maxSerial is how long a serial number can be, in bytes (VIRTIO_BLK_ID_BYTES of the virtio specification, 5.2).
	maxSerial = 20
	// hashLength is how many characters of a hash a serial number has.
	hashLength = 10
)

// Serial returns the serial number of the disk with a name: the name itself, if it has at most 20 bytes. Otherwise its
// beginning, with a hash of the whole name.
func Serial(name string) string {
	if len(name) <= maxSerial {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:maxSerial-hashLength-1] + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
