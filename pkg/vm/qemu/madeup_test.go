package qemu

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// emptyQCOW2 returns an image of 1 MiB without any data (docs/interop/qcow2.txt in QEMU's sources, version 2).
func emptyQCOW2() []byte {
	const clusterBits, cluster = 16, 1 << 16
	var image bytes.Buffer
	header := struct {
		Magic, Version                   uint32
		BackingOffset                    uint64
		BackingSize, ClusterBits         uint32
		Size                             uint64
		Crypt, L1Size                    uint32
		L1Offset, RefcountTableOffset    uint64
		RefcountTableClusters, Snapshots uint32
		SnapshotsOffset                  uint64
	}{
		Magic: 'Q'<<24 | 'F'<<16 | 'I'<<8 | 0xfb, Version: 2, ClusterBits: clusterBits, Size: mebibyte, L1Size: 1,
		L1Offset: 3 * cluster, RefcountTableOffset: cluster, RefcountTableClusters: 1,
	}
	pad := func() { image.Write(make([]byte, (cluster-image.Len()%cluster)%cluster)) }
	for _, part := range []any{header, uint64(2 * cluster), []uint16{1, 1, 1, 1}, uint64(0)} {
		if err := binary.Write(&image, binary.BigEndian, part); err != nil {
			panic(err)
		}
		pad()
	}
	return image.Bytes()
}

// bzImage returns a header by which QEMU recognizes a Linux kernel (Documentation/arch/x86/boot.rst), without code.
func bzImage() []byte {
	image := make([]byte, 64<<10)
	const setupSectors, bootFlag, magic, version, loadFlags, initrdMax = 0x1f1, 0x1fe, 0x202, 0x206, 0x211, 0x22c
	image[setupSectors] = 4
	binary.LittleEndian.PutUint16(image[bootFlag:], 0xaa55)
	copy(image[magic:], "HdrS")
	binary.LittleEndian.PutUint16(image[version:], 0x20c)
	image[loadFlags] = 1
	binary.LittleEndian.PutUint32(image[initrdMax:], 0x7fffffff)
	return image
}

// makeBlockDevice makes path a link to a block device of 1 MiB.
func makeBlockDevice(t *testing.T, path string) {
	t.Helper()
	writeFile(t, path+".img", make([]byte, mebibyte))
	device, err := exec.Command("losetup", "--find", "--show", path+".img").Output()
	if err != nil {
		t.Fatalf("losetup (it needs root): %s", err)
	}
	loop := strings.TrimSpace(string(device))
	t.Cleanup(func() {
		if output, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %s: %s", loop, err, output)
		}
	})
	if err := os.Symlink(loop, path); err != nil {
		t.Fatal(err)
	}
}

func serveVirtiofs(t *testing.T, directory, socket string) {
	t.Helper()
	for _, virtiofsd := range []string{"/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"} {
		if _, err := os.Stat(virtiofsd); err != nil {
			continue
		}
		shared := filepath.Join(directory, "shared")
		if err := os.Mkdir(shared, 0o700); err != nil {
			t.Fatal(err)
		}
		// The one that was part of QEMU before 8.0 has another command line than the one in Rust. It does not remove
		// the file of a socket that it creates itself.
		options := []string{"--fd=3", "--shared-dir", shared}
		if strings.Contains(virtiofsd, "/qemu/") {
			options = []string{"--fd=3", "-o", "source=" + shared}
		}
		command := exec.Command(virtiofsd, options...)
		command.ExtraFiles = []*os.File{listen(t, socket)}
		serve(t, socket, command)
		return
	}
	t.Fatal("there is no virtiofsd: apt-get install virtiofsd")
}

func listen(t *testing.T, socket string) *os.File {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func serveTPM(t *testing.T, directory, socket string) {
	t.Helper()
	serve(t, socket, exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+directory, "--ctrl", "type=unixio,mode=0600,path="+socket))
}

// serve starts a server, waits for its socket and ends it with the test.
func serve(t *testing.T, socket string, command *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	t.Cleanup(func() { _ = command.Process.Kill(); <-ended })
	until(t, func() bool {
		select {
		case <-ended:
			t.Fatalf("%s ended: %s", command, &said)
		default:
		}
		_, err := os.Stat(socket)
		return err == nil
	})
}
