package agentwire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// markByte occurs neither in JSON, which is UTF-8, nor at the beginning of a length.
	markByte = 0xff
	// markWritten is the length of a mark. A reader that is inside of a length takes up to four of its bytes for that, and
	// finds at least markNeeded others.
	markWritten = 16
	markNeeded  = 8
)

// encode returns a frame's bytes.
func encode(f frame) ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(text) > MaxFrame {
		return nil, Errorf(CodeInvalid, "the request has %d bytes, and at most %d are allowed", len(text), MaxFrame)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))), text...), nil //nolint:gosec // it is at most MaxFrame
}

// opening returns a mark and the first frame of a session.
func opening(f frame) ([]byte, error) {
	text, err := encode(f)
	return append(bytes.Repeat([]byte{markByte}, markWritten), text...), err
}

// decode parses a frame's JSON.
func decode(text []byte) (frame, error) {
	var f frame
	if err := json.Unmarshal(text, &f); err != nil {
		return frame{}, fmt.Errorf("%w: a frame is not what it should be: %s", errProtocol, readable(err.Error()))
	}
	if len(f.Data) > MaxChunk {
		return frame{}, fmt.Errorf("%w: %d bytes of data in a frame, and at most %d are allowed", errProtocol, len(f.Data), MaxChunk)
	}
	return f, nil
}

// reader splits a stream into frames. Its memory is bounded by MaxFrame, whatever is in the stream.
type reader struct {
	in      *bufio.Reader
	payload []byte
}

func newReader(from io.Reader) *reader { return &reader{in: bufio.NewReaderSize(from, MaxChunk)} }

// errMark is returned by next after a mark.
var errMark = errors.New("a session begins")

// next returns the JSON of the next frame, which is valid until the next call; or errMark after a mark; or an error with
// errProtocol, after which only skip finds its way; or that of the stream.
func (r *reader) next() ([]byte, error) {
	var length [4]byte
	for i := range length {
		b, err := r.in.ReadByte()
		if err != nil {
			return nil, err
		}
		if i == 0 && b == markByte {
			return nil, errors.Join(r.in.UnreadByte(), r.mark())
		}
		length[i] = b
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > MaxFrame {
		return nil, fmt.Errorf("%w: a frame of %d bytes, and at most %d are allowed", errProtocol, n, MaxFrame)
	}
	return r.body(int(n))
}

// body reads the n bytes of a frame. It reads only what is there, because a mark may come earlier than the n bytes.
func (r *reader) body(n int) ([]byte, error) {
	if cap(r.payload) < n {
		r.payload = make([]byte, n)
	}
	r.payload = r.payload[:n]
	for got := 0; got < n; {
		if _, err := r.in.Peek(1); err != nil {
			return nil, err
		}
		there, err := r.in.Peek(min(n-got, r.in.Buffered()))
		if err != nil {
			return nil, err
		}
		at := bytes.IndexByte(there, markByte)
		if at < 0 {
			got += copy(r.payload[got:], there)
			at = len(there)
		}
		if _, err := r.in.Discard(at); err != nil {
			return nil, err
		}
		if at < len(there) {
			return nil, r.mark()
		}
	}
	return r.payload, nil
}

// mark reads a run of mark bytes, and returns errMark if there are enough of them.
func (r *reader) mark() error {
	for run := 0; ; run++ {
		b, err := r.in.ReadByte()
		if err != nil {
			return err
		}
		if b == markByte {
			continue
		}
		if err := r.in.UnreadByte(); err != nil {
			return err
		}
		if run < markNeeded {
			return fmt.Errorf("%w: a byte %#x that frames do not have", errProtocol, markByte)
		}
		return errMark
	}
}

// skip reads to the end of the next mark, and past at most limit other bytes (0: any number).
func (r *reader) skip(limit int) error {
	for skipped := 0; limit == 0 || skipped < limit; {
		if _, err := r.in.Peek(1); err != nil {
			return err
		}
		there, err := r.in.Peek(r.in.Buffered())
		if err != nil {
			return err
		}
		at := bytes.IndexByte(there, markByte)
		if at < 0 {
			at = len(there)
		}
		if _, err := r.in.Discard(at); err != nil {
			return err
		}
		skipped += at
		if at == len(there) {
			continue
		}
		if err := r.mark(); errors.Is(err, errMark) {
			return nil
		} else if !errors.Is(err, errProtocol) {
			return err
		}
		skipped += markNeeded
	}
	return fmt.Errorf("%w within %d bytes", errLost, limit)
}
