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

// packed is what is kept of the artifact that a machine is made of. It applies where the request has no value; 0 if the artifact
// has none either.
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
	if one.get().Spec.From != "" {
		if err := m.readArtifact(ctx, one); err != nil {
			return err
		}
	}
	return m.make(ctx, one.get())
}

// errCreationInterrupted says that a creation was given up while its artifact was read. Then there is no machine.
var errCreationInterrupted = api.Errorf(api.CodeConflict, "the creation was given up because the machine is being stopped or deleted")

// readArtifact checks the artifact of a new machine, and notes its digest. Stop and Delete interrupt it.
func (m *Manager) readArtifact(ctx context.Context, one *machine) error {
	ctx, done := one.interruptible(ctx)
	defer done()
	r := one.get()
	defer one.tell("the machine is being created: reading " + r.Spec.From)()
	file, err := m.openArtifact(r.Spec.From)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	r.Packed = packed{CPUs: file.Manifest.CPUs, MemoryMB: file.Manifest.MemoryMB}
	r.Digest, err = m.digest(ctx, file)
	switch {
	case errors.Is(context.Cause(ctx), errInterrupted):
		return errCreationInterrupted
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return artifactError(err)
	}
	one.put(r)
	return nil
}

// openArtifact opens an artifact that can run here.
func (m *Manager) openArtifact(path string) (*artifact.File, error) {
	file, err := artifact.Open(m.settings.Artifacts, path)
	if err != nil {
		return nil, artifactError(err)
	}
	if err := file.CheckPlatform(); err != nil {
		return nil, errors.Join(artifactError(err), file.Close())
	}
	return file, nil
}

func (m *Manager) digest(ctx context.Context, file *artifact.File) (string, error) {
	release, err := m.turn(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	return file.Digest(ctx)
}

// readers is how many artifacts are read at a time. Each has up to 40 GiB, and keeps a processor and the disk busy.
const readers = 2

// turn waits until an artifact may be read.
func (m *Manager) turn(ctx context.Context) (release func(), err error) {
	select {
	case m.reading <- struct{}{}:
		return func() { <-m.reading }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// artifactImage returns the image of a machine that is made of an artifact. It is made of the file if it is not in the cache,
// and only if the file is still the one that the machine was created with.
func (m *Manager) artifactImage(ctx context.Context, r Record) (ociimage.Image, error) {
	image, err := m.images.Open(r.Digest)
	if !errors.Is(err, fs.ErrNotExist) {
		return image, err
	}
	file, err := m.openArtifact(r.Spec.From)
	if err != nil {
		return ociimage.Image{}, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	image, err = m.images.Add(ctx, ociimage.Local{
		Reference: r.Spec.From, Digest: r.Digest, Platform: file.Manifest.Platform, Process: file.Manifest.Process,
		// They compare all that was read of the file, its manifest too, with the digest.
		Layers: func(ctx context.Context, directory string, limits ociimage.Limits) ([]ociimage.Layer, func() error, error) {
			release, err := m.turn(ctx)
			if err != nil {
				return nil, nil, err
			}
			defer release()
			return file.Layers(ctx, directory, r.Digest, limits)
		},
	})
	var another *artifact.PathError
	switch {
	case err == nil || ctx.Err() != nil:
		return image, err
	case errors.As(err, &another) && another.Digest != "":
		err = &artifact.PathError{
			Path: r.Spec.From, What: fmt.Sprintf("it is %s, and machine '%s' was created with %s", another.Digest, r.Name, r.Digest),
			Do: "put the former file back, or delete and create the machine",
		}
	}
	return image, artifactError(err)
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
