package cloudconfig

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/ignition/v2/config/v3_3/types"
)

// maxEncoded is the maximum size of an encoded half in bytes. A Kubernetes object may have 1 MiB, including metadata.
const maxEncoded = 900 << 10

// compressors are used again, because a new one takes 800 KiB.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// Encode turns a config into the value of a ConfigMap or Secret: base64 of gzip of JSON. The same config gives the same
// text, which bootdata.Decode unpacks. If a config does not fit into an object, the error names its largest files.
func Encode(c types.Config) (string, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encoding the Ignition config: %w", err)
	}
	var packed bytes.Buffer
	w := compressors.Get().(*gzip.Writer)
	defer func() {
		w.Reset(io.Discard) // or it would keep packed, which may be secret
		compressors.Put(w)
	}()
	// The header of a Writer that was reset has neither name nor time, which would differ from call to call.
	w.Reset(&packed)
	_, err = w.Write(raw)
	if err := errors.Join(err, w.Close()); err != nil {
		return "", fmt.Errorf("compressing the Ignition config: %w", err)
	}
	text := base64.StdEncoding.EncodeToString(packed.Bytes())
	if len(text) >= maxEncoded {
		return "", fmt.Errorf("encoded boot data has %d KiB, %d are allowed; its largest parts are %s",
			len(text)>>10, maxEncoded>>10, strings.Join(largest(c), ", "))
	}
	return text, nil
}

// largest names the three largest files of a config with the sizes of their source URLs; units are all small.
func largest(c types.Config) []string {
	size := func(f types.File) int {
		if f.Contents.Source == nil {
			return 0
		}
		return len(*f.Contents.Source)
	}
	files := slices.Clone(c.Storage.Files)
	slices.SortStableFunc(files, func(a, b types.File) int { return cmp.Compare(size(b), size(a)) })
	var names []string
	for _, f := range files[:min(3, len(files))] {
		names = append(names, fmt.Sprintf("%s (%d KiB)", f.Path, size(f)>>10))
	}
	return names
}
