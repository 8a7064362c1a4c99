// Package cloudinit builds the disk from which cloud-init in a guest takes its configuration: the data source NoCloud
// (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html).
package cloudinit

import (
	"errors"
	"fmt"
	"os"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/fat32"
)

const (
	// Label is the label of the file system, by which cloud-init finds the disk.
	Label = "CIDATA"
	// MaxData is how large the data may be, in bytes.
	MaxData = 4 << 20

	mebibyte = 1 << 20
	// minSize is the size of an image with little data, in bytes.
	minSize = 4 * mebibyte
	// overhead is more than what the file system itself takes beside the largest data, in bytes.
	overhead = mebibyte / 2
)

// Data are the files of the data source.
type Data struct {
	// MetaData and UserData are always there, also if they are empty.
	MetaData, UserData []byte
	// NetworkConfig and VendorData are optional.
	NetworkConfig, VendorData []byte
}

// entry is a file of the image.
type entry struct {
	name    string
	content []byte
}

// entries are the files that the image has.
func (d Data) entries() []entry {
	entries := []entry{{"meta-data", d.MetaData}, {"user-data", d.UserData}}
	for _, optional := range []entry{{"network-config", d.NetworkConfig}, {"vendor-data", d.VendorData}} {
		if len(optional.content) > 0 {
			entries = append(entries, optional)
		}
	}
	return entries
}

// Size returns the size of the image, in bytes. The error says that the data is more than MaxData.
func (d Data) Size() (int64, error) {
	var data int64
	for _, e := range d.entries() {
		data += int64(len(e.content))
	}
	if data > MaxData {
		return 0, fmt.Errorf("the data for cloud-init has %d bytes and may have %d: let the guest download what is large", data, MaxData)
	}
	return max(minSize, (data+overhead+mebibyte-1)/mebibyte*mebibyte), nil
}

// Write makes an empty file the image of a disk: a FAT file system, without a partition table.
func Write(image *os.File, d Data) error {
	size, err := d.Size()
	if err != nil {
		return err
	}
	if err := image.Truncate(size); err != nil {
		return fmt.Errorf("making the disk for cloud-init: %w", err)
	}
	// Sectors of 512 bytes, and no serial number that depends on the time.
	fs, err := fat32.Create(file.New(image, false), size, 0, 512, Label, true)
	if err != nil {
		return fmt.Errorf("formatting the disk for cloud-init: %w", err)
	}
	for _, e := range d.entries() {
		if err := add(fs, e); err != nil {
			return fmt.Errorf("writing %s for cloud-init: %w", e.name, err)
		}
	}
	return nil
}

func add(fs *fat32.FileSystem, e entry) error {
	f, err := fs.OpenFile("/"+e.name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	if len(e.content) > 0 {
		_, err = f.Write(e.content)
	}
	return errors.Join(err, f.Close())
}
