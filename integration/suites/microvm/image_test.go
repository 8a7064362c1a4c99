package microvm_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/ociimage"
)

// image is an image with busybox, and with what could fool process 1: links where it mounts, and devices for files.
func image(t *testing.T) ociimage.Layer {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: install busybox-static", err)
	}
	content, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	to := tar.NewWriter(&archive)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := to.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin/", "etc/", "srv/", "var/", "var/tmp/", "run/"} {
		add(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, content)
	for _, name := range []string{"sh", "cat", "dd", "df", "echo", "false", "grep", "head", "hostname", "id", "ip", "kill", "ls", "mount", "ps", "pwd", "sleep", "stat", "sync", "touch", "true", "tty", "unshare", "yes"} {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:44:web:/srv:/bin/false\n",
		"etc/group":  "root:x:0:\nweb:x:44:\nmedia:x:55:other,web\n",
	} {
		add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, []byte(text))
	}
	add(tar.Header{Name: "bin/lost", Typeflag: tar.TypeReg, Mode: 0o755}, []byte("#!/bin/nowhere\n"))
	for name, link := range map[string]string{
		"etc/hosts": "/dev/ttyS0", "etc/resolv.conf": "../run/nowhere", "tmp": "var/tmp", "dev": "/etc", "proc": "srv",
		"workspace": "/etc", "etc/endless": "/dev/zero", "etc/own": "/proc/self/fd/0",
	} {
		add(tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: link}, nil)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
}
