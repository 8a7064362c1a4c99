package qemu

import "fmt"

const (
	memoryID = "ram"
	mebibyte = 1 << 20
)

// MiB converts a number of bytes to MiB, rounded up: QEMU's -m takes whole ones, and a guest gets at least what it
// requested.
func MiB(bytes int64) int64 {
	whole := bytes / mebibyte
	if bytes%mebibyte > 0 {
		whole++
	}
	return whole
}

// sharesMemory reports whether another process, virtiofsd, has to see the guest's memory.
func (m Machine) sharesMemory() bool {
	for _, share := range m.Shares {
		if share.Socket != "" {
			return true
		}
	}
	return false
}

func (m Machine) addMemory(a *arguments) {
	size := fmt.Sprintf("size=%dM", m.Memory)
	a.add("-m", size)
	if m.sharesMemory() {
		// QEMU requires the same size to the byte.
		a.add("-object", "memory-backend-memfd", "id="+memoryID, size, "share=on")
	}
	a.add("-device", m.device("virtio-balloon"), "id=balloon0", "free-page-reporting=on", "guest-stats-polling-interval=10")
}
