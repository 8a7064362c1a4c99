// Package blockdevice has volumes for virtual machines: loop devices of this machine as local PersistentVolumes of its
// nodes, which share its devices.
package blockdevice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Device is a loop device, and the file behind it.
type Device struct{ path, file string }

// Attach returns a device with a file behind it.
func Attach(ctx context.Context, file string) (Device, error) {
	output, err := losetup(ctx, "--find", "--show", file)
	return Device{path: strings.TrimSpace(output), file: file}, err
}

// Copy copies the image of a disk, without its holes.
func Copy(ctx context.Context, from, to string) error {
	if output, err := exec.CommandContext(ctx, "cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w: %s", from, err, output)
	}
	return nil
}

// releaseTime is how long a kubelet may take to unmap a volume.
const releaseTime = time.Minute

// Detach gives the device back, once the kubelet has given back the device that it has on top of it.
func (d Device) Detach(ctx context.Context) error {
	for began := time.Now(); len(onTop(d.path)) > 0 && time.Since(began) < releaseTime; {
		time.Sleep(time.Second)
	}
	_, err := losetup(ctx, "--detach", d.path)
	return err
}

// Grow makes the device larger, and the one that the kubelet has on top of it.
func (d Device) Grow(ctx context.Context, size int64) error {
	if err := os.Truncate(d.file, size); err != nil {
		return err
	}
	for _, path := range append([]string{d.path}, onTop(d.path)...) {
		if _, err := losetup(ctx, "--set-capacity", path); err != nil {
			return err
		}
	}
	return nil
}

func losetup(ctx context.Context, arguments ...string) (string, error) {
	var said bytes.Buffer
	command := exec.CommandContext(ctx, "losetup", arguments...)
	command.Stderr = &said
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("losetup %s: %w: %s", strings.Join(arguments, " "), err, said.String())
	}
	return string(output), nil
}

// DetachBelow gives back the devices with files below a directory, also those of a process that was killed.
func DetachBelow(directory string) error {
	var errs []error
	for _, path := range devices(func(file string) bool { return strings.HasPrefix(file, directory+string(filepath.Separator)) }) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*releaseTime)
		errs = append(errs, Device{path: path}.Detach(ctx))
		cancel()
	}
	return errors.Join(errs...)
}

// onTop returns the loop devices on a device.
func onTop(path string) []string { return devices(func(file string) bool { return file == path }) }

// devices returns the loop devices whose file is one of those.
func devices(is func(file string) bool) (paths []string) {
	descriptions, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is a constant
	for _, description := range descriptions {
		if text, err := os.ReadFile(description); err == nil && is(strings.TrimSpace(string(text))) {
			paths = append(paths, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(description))))
		}
	}
	return paths
}

// Volume returns a volume of a size that is the device. Its StorageClass, which needs no object, has its name.
func (d Device) Volume(name, size string) *corev1.PersistentVolume {
	v := volume(name, d.path, size)
	v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock)
	return v
}

// Directory returns a volume that is a directory of this machine. Its StorageClass, which needs no object, has its name.
func Directory(name, path string) *corev1.PersistentVolume { return volume(name, path, "64Mi") }

func volume(name, path, size string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}},
			}}}},
		},
	}
}
