package cloudconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_3/types"
	"k8s.io/utils/lru"

	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// Halves are the encoded halves of a node's boot data, as they are stored.
type Halves struct{ Public, Private string }

// Rendered is the boot data of a node.
type Rendered struct {
	Halves
	// Hash is that of what makes a running node outdated.
	Hash string
}

const (
	// mostRendered is how many nodes' boot data a Renderer keeps that is not stored, of some 20 KiB each.
	mostRendered = 2048
	// mostStored is how many nodes' boot data it knows by its digests, of some 200 bytes each.
	mostStored = 16384
)

// stored is what a Renderer knows of boot data that is in the API server: the hash, and the digests of the halves.
type stored struct {
	hash            string
	public, private [sha256.Size]byte
}

// Renderer renders boot data and caches it: rendering and validating takes milliseconds, and a node's boot data is
// needed whenever anything happens to its cluster. It keeps the text of a node only until it is stored. It is safe for
// concurrent use.
type Renderer struct{ rendered, stored *lru.Cache }

// NewRenderer returns a Renderer with an empty cache.
func NewRenderer() *Renderer {
	return &Renderer{rendered: lru.New(mostRendered), stored: lru.New(mostStored)}
}

// Render renders the boot data of a node, or returns it from the cache, whose key is everything that it depends on. there
// is what the API server has, which other clients may have written; it may be empty. If it is the same, it is neither
// checked nor packed again: that takes two thirds of the time, and each start of the operator would do it for every node.
func (r *Renderer) Render(p Params, there Halves) (Rendered, error) {
	fingerprint, err := fingerprintOf(p)
	if err != nil {
		return Rendered{}, err
	}
	if known, ok := r.stored.Get(fingerprint); ok && known.(stored).is(there) {
		return Rendered{Halves: there, Hash: known.(stored).hash}, nil
	}
	rendered, err := r.render(fingerprint, p, there)
	if err == nil && rendered.Halves == there {
		r.stored.Add(fingerprint, storedAs(rendered))
		r.rendered.Remove(fingerprint)
	}
	return rendered, err
}

// render renders boot data, unless it has done so and the text is still there.
func (r *Renderer) render(fingerprint [sha256.Size]byte, p Params, there Halves) (Rendered, error) {
	if known, ok := r.rendered.Get(fingerprint); ok {
		return known.(Rendered), nil
	}
	rendered, err := render(p, there)
	if err == nil {
		r.rendered.Add(fingerprint, rendered)
	}
	return rendered, err
}

func storedAs(r Rendered) stored {
	return stored{hash: r.Hash, public: sha256.Sum256([]byte(r.Public)), private: sha256.Sum256([]byte(r.Private))}
}

// is reports whether boot data is what is known.
func (s stored) is(halves Halves) bool {
	return sha256.Sum256([]byte(halves.Public)) == s.public && sha256.Sum256([]byte(halves.Private)) == s.private
}

// fingerprintOf returns a hash of all parameters.
func fingerprintOf(p Params) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding the parameters: %w", err)
	}
	return sha256.Sum256(raw), nil
}

func render(p Params, stored Halves) (rendered Rendered, err error) {
	data, err := unchecked(p)
	if err != nil {
		return Rendered{}, err
	}
	if rendered.Halves, err = data.encode(stored); err != nil {
		return Rendered{}, err
	}
	rendered.Hash, err = Hash(p)
	return rendered, err
}

// encode returns the halves as they are stored, if they are the same, and otherwise checks and encodes them.
func (d BootData) encode(stored Halves) (halves Halves, err error) {
	public, err := isStored(stored.Public, d.Public)
	if err != nil {
		return Halves{}, err
	}
	private, err := isStored(stored.Private, d.Private)
	if err != nil {
		return Halves{}, err
	}
	if public && private {
		return stored, nil
	}
	if err := d.check(); err != nil {
		return Halves{}, err
	}
	if halves.Public, err = Encode(d.Public); err != nil {
		return Halves{}, err
	}
	halves.Private, err = Encode(d.Private)
	return halves, err
}

// isStored reports whether stored boot data is a config. Other clients may write it, so that it may be anything.
func isStored(stored string, config types.Config) (bool, error) {
	if stored == "" {
		return false, nil
	}
	want, err := json.Marshal(config)
	if err != nil {
		return false, fmt.Errorf("encoding the Ignition config: %w", err)
	}
	have, err := bootdata.Decode(stored)
	return err == nil && bytes.Equal(have, want), nil
}
