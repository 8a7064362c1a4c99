package usernet

import (
	"encoding/binary"
	"net"
	"sync"
)

// writer writes frames to the guest's card.
type writer struct {
	mu   sync.Mutex
	conn net.Conn
}

// write writes frames, each after its length.
func (w *writer) write(frames ...[]byte) error {
	if len(frames) == 0 {
		return nil
	}
	var parts net.Buffers
	for _, frame := range frames {
		length := binary.BigEndian.AppendUint32(nil, uint32(len(frame))) //nolint:gosec // G115: a frame is at most maxMTU and a header long
		parts = append(parts, length, frame)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := parts.WriteTo(w.conn)
	return err
}
