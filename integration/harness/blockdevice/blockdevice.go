// Package blockdevice has volumes for virtual machines: loop devices of this machine as local PersistentVolumes of its
// nodes, which share its devices.
package blockdevice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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

// Detach gives the device back, once the kubelet has given back the device that it has on top of it. The kubelet of a node
// that lost its power does not: then Detach does.
func (d Device) Detach(ctx context.Context) error {
	for began := time.Now(); ; time.Sleep(time.Second) {
		above, err := onTop(ctx, d.path)
		if err == nil && len(above) > 0 && time.Since(began) < releaseTime {
			continue
		}
		errs := []error{err}
		for _, path := range append(above, d.path) {
			errs = append(errs, detach(ctx, path))
		}
		return errors.Join(errs...)
	}
}

// DetachBelow gives back the devices with files below a directory, also those of a process that was killed, and those
// that a kubelet, which has ended, had on top of them.
func DetachBelow(ctx context.Context, directory string) error {
	all, err := loops(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	if resolved, err := filepath.EvalSymlinks(directory); err == nil { // the kernel knows this name
		directory = resolved
	}
	var errs []error
	for _, l := range all {
		if !strings.HasPrefix(l.File, directory+string(filepath.Separator)) {
			continue
		}
		above, err := onTop(ctx, l.Path)
		errs = append(errs, err)
		for _, path := range append(above, l.Path) {
			errs = append(errs, detach(ctx, path))
		}
	}
	return errors.Join(errs...)
}

// detach gives a device back, unless that was done already.
func detach(ctx context.Context, path string) error {
	_, err := losetup(ctx, "--detach", path)
	if err != nil && strings.Contains(err.Error(), "No such device") {
		return nil
	}
	return err
}

// Grow makes the device larger, and the one that the kubelet has on top of it.
func (d Device) Grow(ctx context.Context, size int64) error {
	if err := os.Truncate(d.file, size); err != nil {
		return err
	}
	above, err := onTop(ctx, d.path)
	if err != nil {
		return err
	}
	for _, path := range append([]string{d.path}, above...) {
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

// loop is a loop device of this machine: its path, the device and the number of the file behind it, and the file's name,
// which may be another one in the mount namespace that the device was made in.
type loop struct {
	Path   string `json:"name"`
	Device string `json:"back-maj:min"`
	Inode  uint64 `json:"back-ino"`
	File   string `json:"back-file"`
}

func loops(ctx context.Context) ([]loop, error) {
	output, err := losetup(ctx, "--list", "--json", "--output", "NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE")
	if err != nil || output == "" {
		return nil, err // without devices, it prints nothing
	}
	var list struct {
		Loopdevices []loop `json:"loopdevices"`
	}
	err = json.Unmarshal([]byte(output), &list)
	return list.Loopdevices, err
}

// onTop returns the loop devices on a device.
func onTop(ctx context.Context, path string) (above []string, err error) {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(file.Dev), unix.Minor(file.Dev))
	all, err := loops(ctx)
	for _, l := range all {
		if strings.TrimSpace(l.Device) == device && l.Inode == file.Ino {
			above = append(above, l.Path)
		}
	}
	return above, err
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
