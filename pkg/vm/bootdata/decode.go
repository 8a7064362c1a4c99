// Package bootdata turns the halves of a node's boot data into the one Ignition config that its machine boots with.
package bootdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

// maxDecoded bounds what Decode unpacks, in bytes. A Kubernetes object has at most 1 MiB; data that unpacks to more
// than this was made to exhaust memory.
const maxDecoded = 16 << 20

// Decode returns the JSON that is packed in the value of a ConfigMap or Secret: base64 of gzip of JSON. It rejects data
// that is packed in another way, is damaged or unpacks to more than 16 MiB.
func Decode(text string) ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("boot data is not base64: %w", err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("boot data is not gzip: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxDecoded+1))
	if err != nil {
		return nil, fmt.Errorf("boot data is damaged: %w", err)
	}
	if len(raw) > maxDecoded {
		return nil, fmt.Errorf("boot data unpacks to more than %d MiB", maxDecoded>>20)
	}
	return raw, nil
}
