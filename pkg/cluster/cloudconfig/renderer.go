package cloudconfig

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"k8s.io/utils/lru"
)

// Rendered is the boot data of a node as it is stored.
type Rendered struct {
	// Public and Private are the encoded halves.
	Public, Private string
	// Hash is that of what makes a running node outdated.
	Hash string
}

// renderings is how many nodes' boot data a Renderer caches, of some 40 KiB each.
const renderings = 2048

// Renderer renders boot data and caches it: rendering and validating takes milliseconds, and a node's boot data is
// needed whenever anything happens to its cluster. It is safe for concurrent use.
type Renderer struct{ known *lru.Cache }

// NewRenderer returns a Renderer with an empty cache.
func NewRenderer() *Renderer { return &Renderer{known: lru.New(renderings)} }

// Render renders the boot data of a node, or returns it from the cache, whose key is everything that it depends on.
func (r *Renderer) Render(p Params) (Rendered, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return Rendered{}, fmt.Errorf("encoding the parameters: %w", err)
	}
	fingerprint := sha256.Sum256(raw)
	if known, ok := r.known.Get(fingerprint); ok {
		return known.(Rendered), nil
	}
	rendered, err := render(p)
	if err != nil {
		return Rendered{}, err
	}
	r.known.Add(fingerprint, rendered)
	return rendered, nil
}

func render(p Params) (Rendered, error) {
	data, err := Render(p)
	if err != nil {
		return Rendered{}, err
	}
	var rendered Rendered
	if rendered.Public, err = Encode(data.Public); err != nil {
		return Rendered{}, err
	}
	if rendered.Private, err = Encode(data.Private); err != nil {
		return Rendered{}, err
	}
	rendered.Hash, err = Hash(p)
	return rendered, err
}
