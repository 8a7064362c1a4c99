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

// renderings is how many nodes' boot data a Renderer knows. It keeps the text of a node, some 15 KiB, only until it is
// stored, and then 150 bytes.
const renderings = 16384

// rendering is what a Renderer knows of boot data: the digests of its halves, and the text unless it is stored.
type rendering struct {
	Rendered
	public, private [sha256.Size]byte
}

// Renderer renders boot data and caches it: rendering and validating takes milliseconds, and a node's boot data is
// needed whenever anything happens to its cluster. It is safe for concurrent use.
type Renderer struct{ known *lru.Cache }

// NewRenderer returns a Renderer with an empty cache.
func NewRenderer() *Renderer { return &Renderer{known: lru.New(renderings)} }

// Render renders the boot data of a node, or returns it from the cache, whose key is everything that it depends on. What
// is stored already, and is the same, is neither checked nor packed again: that takes two thirds of the time, and after a
// start of the operator it would be done for every node of every cluster. It may be empty.
func (r *Renderer) Render(p Params, stored Halves) (Rendered, error) {
	fingerprint, err := fingerprintOf(p)
	if err != nil {
		return Rendered{}, err
	}
	if known, ok := r.known.Get(fingerprint); ok {
		known := known.(rendering)
		if known.is(stored) {
			r.known.Add(fingerprint, known.withoutText())
			return Rendered{Halves: stored, Hash: known.Hash}, nil
		}
		if known.Halves != (Halves{}) {
			return known.Rendered, nil
		}
	}
	rendered, err := render(p, stored)
	if err != nil {
		return Rendered{}, err
	}
	known := rendering{Rendered: rendered, public: sha256.Sum256([]byte(rendered.Public)), private: sha256.Sum256([]byte(rendered.Private))}
	if rendered.Halves == stored {
		known = known.withoutText()
	}
	r.known.Add(fingerprint, known)
	return rendered, nil
}

// fingerprintOf returns a hash of all parameters.
func fingerprintOf(p Params) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding the parameters: %w", err)
	}
	return sha256.Sum256(raw), nil
}

func (r rendering) is(stored Halves) bool {
	return sha256.Sum256([]byte(stored.Public)) == r.public && sha256.Sum256([]byte(stored.Private)) == r.private
}

func (r rendering) withoutText() rendering {
	r.Halves = Halves{}
	return r
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
