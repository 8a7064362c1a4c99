package microvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/artifact"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
)

// packed is what is kept of the artifact that a machine is made of. It is in force where the request says nothing; 0 if the
// artifact does not either.
type packed struct {
	CPUs     int   `json:"cpus,omitempty"`
	MemoryMB int64 `json:"memoryMb,omitempty"`
}

// cpus and memoryMB are what the machine has.
func (r Record) cpus() int { return cmp.Or(r.Spec.CPUs, r.Packed.CPUs, api.DefaultCPUs) }

func (r Record) memoryMB() int64 {
	return cmp.Or(r.Spec.MemoryMB, r.Packed.MemoryMB, api.DefaultMemoryMB)
}

// build makes what a new machine needs. Its artifact, if it has one, is read as a whole: from then on the machine is made of
// what the file has now.
func (m *Manager) build(ctx context.Context, one *machine) error {
	r := one.get()
	if r.Spec.From != "" {
		if err := m.readArtifact(ctx, &r); err != nil {
			return err
		}
		one.put(r)
	}
	return m.make(ctx, r)
}

// readArtifact checks the artifact of a new machine, and notes its digest.
func (m *Manager) readArtifact(ctx context.Context, r *Record) error {
	file, digest, err := m.openArtifact(ctx, r.Spec.From)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	r.Digest, r.Packed = digest, packed{CPUs: file.Manifest.CPUs, MemoryMB: file.Manifest.MemoryMB}
	return nil
}

// openArtifact opens an artifact that can run here, and returns its digest.
func (m *Manager) openArtifact(ctx context.Context, path string) (*artifact.File, string, error) {
	file, err := artifact.Open(m.settings.Artifacts, path)
	if err != nil {
		return nil, "", artifactError(err)
	}
	err = file.CheckPlatform()
	digest := ""
	if err == nil {
		digest, err = file.Digest(ctx)
	}
	if err == nil {
		return file, digest, nil
	}
	if ctx.Err() == nil {
		err = artifactError(err)
	}
	return nil, "", errors.Join(err, file.Close())
}

// artifactImage returns the image of a machine that is made of an artifact. It is made of the file if it is not in the cache,
// and only if the file is still the one that the machine was created with.
func (m *Manager) artifactImage(ctx context.Context, r Record) (ociimage.Image, error) {
	image, err := m.images.Open(r.Digest)
	if !errors.Is(err, fs.ErrNotExist) {
		return image, err
	}
	file, digest, err := m.openArtifact(ctx, r.Spec.From)
	if err != nil {
		return ociimage.Image{}, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if digest != r.Digest {
		return ociimage.Image{}, artifactError(&artifact.PathError{
			Path: r.Spec.From, What: fmt.Sprintf("it is %s, and machine '%s' was created with %s", digest, r.Name, r.Digest),
			Do: "put the former file back, or delete and create the machine",
		})
	}
	image, err = m.images.Add(ctx, ociimage.Local{
		Reference: r.Spec.From, Digest: digest, Platform: file.Manifest.Platform, Process: file.Manifest.Process,
		Layers: func(ctx context.Context, directory string, limits ociimage.Limits) ([]ociimage.Layer, func() error, error) {
			return file.Layers(ctx, directory, digest, limits)
		},
	})
	if err != nil && ctx.Err() == nil {
		return image, artifactError(err)
	}
	return image, err
}

// artifactError gives an error of an artifact its code.
func artifactError(err error) error {
	var path *artifact.PathError
	var unsupported *artifact.UnsupportedError
	var full *disk.FullError
	switch {
	case errors.As(err, &path):
		return api.Errorf(api.CodeBadRequest, "from: %v", err)
	case errors.As(err, &unsupported):
		return api.Errorf(api.CodeUnsupportedArtifact, "from: %v", err)
	case errors.As(err, new(*artifact.MalformedError)):
		return api.Errorf(api.CodeImageMalformed, "from: %v", err)
	case errors.As(err, new(ociimage.MalformedError)):
		return api.Errorf(api.CodeImageMalformed, "from: %v; pack it again", err)
	case errors.As(err, &full):
		return api.Errorf(api.CodeDiskFull, "from: %v", err)
	}
	return fmt.Errorf("from: %w", err)
}
