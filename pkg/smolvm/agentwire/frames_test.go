package agentwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// mustOpen and mustEncode return the bytes of frames.
func mustOpen(t testing.TB, f frame) []byte {
	t.Helper()
	text, err := opening(f)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func mustEncode(t testing.TB, f frame) []byte {
	t.Helper()
	text, err := encode(f)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSessionIsFoundAfterAnyPartOfAnotherOne cuts a stream at each of its bytes, and begins a session there.
func TestSessionIsFoundAfterAnyPartOfAnotherOne(t *testing.T) {
	// Lengths whose last bytes are those of a mark are the worst case.
	worst := frame{ID: 1, Kind: kindPing}
	worst.Path = strings.Repeat("x", 0xffff-len(mustEncode(t, worst))-len(`,"path":""`)+4)
	if length := binary.BigEndian.Uint32(mustEncode(t, worst)); length != 0xffff {
		t.Fatalf("the frame has %#x bytes", length)
	}
	earlier := append(mustOpen(t, frame{Kind: kindHello, Session: "earlier"}), mustEncode(t, worst)...)
	hello := mustOpen(t, frame{Kind: kindHello, Session: "this"})
	step := 1
	for cut := 0; cut <= len(earlier); cut += step {
		if cut == 200 {
			step = 997 // the rest of it consists of equal bytes
		}
		for name, slow := range map[string]func(io.Reader) io.Reader{"at once": noChange, "byte by byte": iotest.OneByteReader} {
			if slow != nil && step == 997 && name == "byte by byte" {
				continue
			}
			from := newReader(slow(io.MultiReader(bytes.NewReader(earlier[:cut]), bytes.NewReader(hello))))
			if !findsHello(from) {
				t.Fatalf("after %d bytes, %s, the session is not found", cut, name)
			}
		}
	}
}

func noChange(r io.Reader) io.Reader { return r }

// findsHello reads as the guest does, until it finds the hello of session "this".
func findsHello(from *reader) bool {
	for {
		text, err := from.next()
		switch {
		case errors.Is(err, errProtocol):
			if from.skip(0) != nil {
				return false
			}
		case errors.Is(err, errMark):
		case err != nil:
			return false
		default:
			if f, err := decode(text); err == nil && f.Session == "this" {
				return true
			}
		}
	}
}

func TestWhatIsNoFrameIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		stream string
		want   error
	}{
		"nothing":                        {"", io.EOF},
		"a part of a length":             {"\x00\x00", io.EOF},
		"a part of a frame":              {"\x00\x00\x00\x05{}", io.EOF},
		"a large frame":                  {"\x00\x10\x00\x01{}", errProtocol},
		"the largest length":             {"\xfe\xff\xff\xff{}", errProtocol},
		"a mark that is short":           {"\xff\xff\xff\xff\xff\xff\xff\x00", errProtocol},
		"a byte of a mark in a frame":    {"\x00\x00\x00\x05{\xff\"a\"", errProtocol},
		"a mark":                         {"\xff\xff\xff\xff\xff\xff\xff\xff\x00", errMark},
		"a mark in a frame":              {"\x00\x00\x00\xf0{\xff\xff\xff\xff\xff\xff\xff\xff\x00", errMark},
		"a mark that continues and ends": {strings.Repeat("\xff", 1000), io.EOF},
	} {
		if _, err := newReader(strings.NewReader(test.stream)).next(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	for _, text := range []string{"", "{", "[]", `{"id":-1}`, `{"data":"` + strings.Repeat("A", 4*(MaxChunk/3+1)) + `"}`} {
		if _, err := decode([]byte(text)); !errors.Is(err, errProtocol) {
			t.Errorf("%.20s: %v", text, err)
		}
	}
	if _, err := encode(frame{Path: strings.Repeat("x", MaxFrame)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a large request: %v", err)
	}
	if err := newReader(strings.NewReader(strings.Repeat("x", 1000))).skip(100); !errors.Is(err, errLost) {
		t.Errorf("much that is no session: %v", err)
	}
}

func TestTextsOfTheOtherSideAreReadable(t *testing.T) {
	for text, want := range map[string]string{
		"no such file": "no such file", "\x1b[31mred\n": "[31mred", "a\x00b": "a b", "größer": "größer",
		strings.Repeat("x", 5000): strings.Repeat("x", maxText),
	} {
		if got := readable(text); got != want {
			t.Errorf("%.20q becomes %.20q", text, got)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add(append(mustOpen(f, frame{Kind: kindHello, Session: "x"}), mustEncode(f, frame{ID: 1, Kind: kindPing})...))
	f.Fuzz(func(t *testing.T, stream []byte) {
		from := newReader(bytes.NewReader(stream))
		for {
			text, err := from.next()
			switch {
			case errors.Is(err, errMark):
			case errors.Is(err, errProtocol):
				if from.skip(0) != nil {
					return
				}
			case err != nil:
				return
			default:
				_, _ = decode(text)
				if len(text) > MaxFrame || bytes.IndexByte(text, markByte) >= 0 {
					t.Fatalf("a frame of %d bytes", len(text))
				}
			}
		}
	})
}
