package cloudconfig

import (
	"strings"
	"testing"
)

// TestRegistriesThatNeedAPathAreRefusedWithoutOne: docker.io was the default of the original's chart, and meant
// docker.io/giantswarm.
func TestRegistriesThatNeedAPathAreRefusedWithoutOne(t *testing.T) {
	const sentence = "has no images without a path"
	for domain, refused := range map[string]bool{
		"docker.io": true, "index.docker.io": true, "registry-1.docker.io": true, "quay.io": true, "ghcr.io": true,
		"docker.io/giantswarm": false, "quay.io/mirror/k8s": false, "registry.k8s.io": false, "": false, "mirror.example.org": false,
		"localhost:5000": false,
	} {
		t.Run(domain, func(t *testing.T) {
			err := Settings{RegistryDomain: domain}.Validate()
			if got := err != nil && strings.Contains(err.Error(), sentence); got != refused {
				t.Errorf("refused: %t (%v), want %t", got, err, refused)
			}
		})
	}
}
