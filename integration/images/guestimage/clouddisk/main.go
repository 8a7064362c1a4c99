// Command clouddisk writes the disks of guests that UEFI boots: a GPT with an EFI system partition, which has the files
// of a directory, and, if there is one, a root partition with the content of a file. No device or mount is needed. The
// same inputs result in the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	diskfs "github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/gpt"
)

const (
	sector = 512
	// first is the first sector of the first partition, and espSize the size of that partition in bytes.
	first      = 2048
	espSize    = 64 << 20
	espSectors = espSize / sector
	// tail is room for the second copy of the partition table, in sectors.
	tail = 2048
)

func main() {
	esp := flag.String("esp", "", "directory with the files of the EFI system partition")
	root := flag.String("root", "", "file with the content of the root partition; empty: the disk has none")
	out := flag.String("o", "", "disk to write")
	flag.Parse()
	if err := write(*out, *esp, *root); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func write(out, esp, root string) error {
	partitions := []*gpt.Partition{
		{Index: 1, Start: first, End: first + espSectors - 1, Type: gpt.EFISystemPartition, Name: "esp", GUID: "6f2c1a52-9d0b-4b58-8f0e-5f0c8f3e0001"},
	}
	if root != "" {
		info, err := os.Stat(root)
		if err != nil {
			return err
		}
		sectors := uint64((info.Size() + sector - 1) / sector) //nolint:gosec // G115: sizes are positive
		partitions = append(partitions, &gpt.Partition{Index: 2, Start: first + espSectors, End: first + espSectors + sectors - 1, Type: gpt.LinuxFilesystem, Name: "root", GUID: "6f2c1a52-9d0b-4b58-8f0e-5f0c8f3e0002"})
	}
	last := partitions[len(partitions)-1].End
	storage, err := file.CreateFromPath(out, int64(last+1+tail)*sector) //nolint:gosec // G115: less than a TiB
	if err != nil {
		return err
	}
	d, err := diskfs.OpenBackend(storage, diskfs.WithSectorSize(diskfs.SectorSize512))
	if err != nil {
		return err
	}
	table := &gpt.Table{ProtectiveMBR: true, GUID: "6f2c1a52-9d0b-4b58-8f0e-5f0c8f3e0000", LogicalSectorSize: sector, PhysicalSectorSize: sector, Partitions: partitions}
	if err := d.Partition(table); err != nil {
		return fmt.Errorf("partition: %w", err)
	}
	system, err := d.CreateFilesystem(disk.FilesystemSpec{Partition: 1, FSType: filesystem.TypeFat32, VolumeLabel: "ESP", Reproducible: true})
	if err != nil {
		return fmt.Errorf("make the EFI system partition: %w", err)
	}
	if err := copyTree(system, esp); err != nil {
		return err
	}
	if root != "" {
		if err := writeRoot(d, root); err != nil {
			return err
		}
	}
	return d.Close()
}

func writeRoot(d *disk.Disk, root string) error {
	content, err := os.Open(root)
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := d.WritePartitionContents(2, content); err != nil {
		return fmt.Errorf("write the root partition: %w", err)
	}
	return nil
}

// copyTree copies a directory into a file system.
func copyTree(to filesystem.FileSystem, from string) error {
	return filepath.WalkDir(from, func(source string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, source)
		if err != nil || relative == "." {
			return err
		}
		target := path.Join("/", filepath.ToSlash(relative))
		if entry.IsDir() {
			return to.Mkdir(target)
		}
		return copyFile(to, source, target)
	})
}

func copyFile(to filesystem.FileSystem, source, target string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(target, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return fmt.Errorf("make %s: %w", target, err)
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
