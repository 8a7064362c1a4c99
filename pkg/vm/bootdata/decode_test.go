package bootdata_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

func TestWhatIsPackedIsDecoded(t *testing.T) {
	const text = `{"ignition":{"version":"3.3.0"}}`
	for name, packed := range map[string]string{
		"as it is":                       pack(t, []byte(text)),
		"with a line break at the end":   pack(t, []byte(text)) + "\n",
		"with blanks around":             "  " + pack(t, []byte(text)) + " \n",
		"packed with the least of gzip":  packWith(t, []byte(text), gzip.HuffmanOnly),
		"packed with nothing but a copy": packWith(t, []byte(text), gzip.NoCompression),
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := bootdata.Decode(packed)
			if err != nil || string(raw) != text {
				t.Errorf("got %q, %v", raw, err)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	whole := pack(t, bytes.Repeat([]byte("boot data "), 1000))
	for name, test := range map[string]struct{ text, want string }{
		"what is not base64":       {"{}", "not base64"},
		"what is not gzip":         {base64.StdEncoding.EncodeToString([]byte("{}")), "not gzip"},
		"what is cut off":          {whole[:len(whole)/2/4*4], "damaged"},
		"what has a wrong sum":     {flip(t, whole), "damaged"},
		"what unpacks to too much": {pack(t, make([]byte, 16<<20+1)), "more than 16 MiB"},
		"nothing":                  {"", "not gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := bootdata.Decode(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("decoded to %d bytes, %v; want an error with %q", len(raw), err, test.want)
			}
		})
	}
}

// FuzzDecode: the content of a ConfigMap is decoded to at most 16 MiB or rejected.
func FuzzDecode(f *testing.F) {
	f.Add(pack(f, []byte(`{"ignition":{"version":"3.3.0"}}`)))
	f.Add(base64.StdEncoding.EncodeToString([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}))
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		raw, err := bootdata.Decode(text)
		if err != nil && raw != nil || len(raw) > 16<<20 {
			t.Errorf("got %d bytes with error %v", len(raw), err)
		}
	})
}

func pack(t testing.TB, raw []byte) string { return packWith(t, raw, gzip.DefaultCompression) }

func packWith(t testing.TB, raw []byte, level int) string {
	t.Helper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

// flip changes the checksum at the end of the packed data.
func flip(t *testing.T, text string) string {
	t.Helper()
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	packed[len(packed)-8] ^= 1
	return base64.StdEncoding.EncodeToString(packed)
}
