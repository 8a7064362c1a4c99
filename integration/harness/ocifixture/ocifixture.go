// Package ocifixture makes container images without a container engine, from this host's static busybox, and serves them
// from a registry on the loopback interface.
package ocifixture

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// WebPort is the port on which the image Web serves.
const WebPort = 80

// Alpine returns an image that stands for alpine:latest: it has busybox and a shell as its command, which ends at once
// without a terminal. It is not Alpine Linux.
func Alpine() (v1.Image, error) {
	return image(v1.Config{Cmd: []string{"/bin/sh"}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}, nil)
}

// Web returns an image that serves /srv by HTTP.
func Web() (v1.Image, error) {
	return image(v1.Config{
		Entrypoint: []string{"/bin/httpd"}, Cmd: []string{"-f", "-p", fmt.Sprint(WebPort), "-h", "/srv"}, WorkingDir: "/srv",
		Env: []string{"PATH=/bin"}, ExposedPorts: map[string]struct{}{fmt.Sprintf("%d/tcp", WebPort): {}},
	}, map[string]string{"srv/index.html": "hello from a microVM\n"})
}

// applets are the programs that busybox is.
const applets = "sh ash cat chmod cp date dd df echo env false free grep head hostname httpd id ip kill ls mkdir mount mv nc nslookup ping printf ps pwd rm " +
	"sed sleep sort stat sync tail test touch tr true tty uname vi wc wget yes"

// image returns an image of two layers: busybox, and further files.
func image(config v1.Config, files map[string]string) (v1.Image, error) {
	base, err := busybox()
	if err != nil {
		return nil, err
	}
	var top tarball
	top.directory("srv/")
	for name, text := range files {
		top.file(name, 0o644, []byte(text))
	}
	layers := []v1.Layer{base.layer(), top.layer()}
	made, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), layers...)
	if err != nil {
		return nil, err
	}
	file, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", "amd64", config
	made, err = mutate.ConfigFile(made, file)
	return made, errors.Join(err, base.err, top.err)
}

func busybox() (*tarball, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fmt.Errorf("finding busybox: %w; install busybox-static", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var t tarball
	for _, directory := range []string{"bin/", "etc/", "root/", "tmp/", "var/"} {
		t.directory(directory)
	}
	t.file("bin/busybox", 0o755, content)
	for applet := range strings.FieldsSeq(applets) {
		t.add(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	t.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nweb:x:33:33:web:/srv:/bin/false\n"))
	t.file("etc/group", 0o644, []byte("root:x:0:\nweb:x:33:\n"))
	t.file("etc/os-release", 0o644, []byte("NAME=\"busybox of kvm-operator's tests\"\nID=busybox\n"))
	return &t, nil
}

// tarball is a tar archive that is being made. Its times are fixed, so that the same content has the same digest.
type tarball struct {
	buffer bytes.Buffer
	writer *tar.Writer
	err    error
}

func (t *tarball) add(h tar.Header, content []byte) {
	if t.writer == nil {
		t.writer = tar.NewWriter(&t.buffer)
	}
	h.Size, h.ModTime = int64(len(content)), time.Unix(1700000000, 0)
	t.err = errors.Join(t.err, t.writer.WriteHeader(&h))
	_, err := t.writer.Write(content)
	t.err = errors.Join(t.err, err)
}

func (t *tarball) directory(name string) {
	t.add(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
}

func (t *tarball) file(name string, mode int64, content []byte) {
	t.add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode}, content)
}

func (t *tarball) layer() v1.Layer {
	t.err = errors.Join(t.err, t.writer.Close())
	return static.NewLayer(t.buffer.Bytes(), types.OCIUncompressedLayer)
}

// Registry is a registry on the loopback interface.
type Registry struct {
	// Host is its address as host:port. It does not speak TLS.
	Host   string
	server *http.Server
}

// ServeAlso serves the same images on another listener, until Close.
func (r *Registry) ServeAlso(listener net.Listener) { go func() { _ = r.server.Serve(listener) }() }

// Serve serves images by their repository and tag, such as library/alpine:latest. wrap may change how requests are
// answered; nil for not.
func Serve(images map[string]v1.Image, wrap func(http.Handler) http.Handler) (*Registry, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if wrap != nil {
		handler = wrap(handler)
	}
	r := &Registry{Host: listener.Addr().String(), server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}}
	go func() { _ = r.server.Serve(listener) }()
	for text, image := range images {
		reference, err := name.ParseReference(r.Host+"/"+text, name.Insecure)
		if err == nil {
			err = remote.Write(reference, image)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serving the image %s: %w", text, err), r.Close())
		}
	}
	return r, nil
}

// Close ends the registry.
func (r *Registry) Close() error { return r.server.Close() }

// FreePort returns a TCP port of the loopback interface that is not in use now. It is below the ports that the kernel gives
// to connections, so that none of these takes it before the caller does.
func FreePort() (uint16, error) {
	const first, number, attempts = 20000, 12000, 100
	var failed error
	for range attempts {
		port := first + rand.N[uint16](number)
		listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)))
		if err == nil {
			return port, listener.Close()
		}
		failed = err
	}
	return 0, fmt.Errorf("no port was free in %d attempts: %w", attempts, failed)
}
