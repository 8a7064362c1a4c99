package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

// mirrorPort is the mirror's port, on the address of the site.
const mirrorPort = "8088"

// mirror is what a site without Internet has beside its management cluster: a web server with the binaries that nodes
// download when their guest image lacks them, each with its checksum, under upstream's paths.
type mirror struct {
	files  map[string]string // URL path → file
	server *http.Server

	mu     sync.Mutex
	served map[string]int
}

// startMirror serves the kubelet, kubectl and the CNI plugins. The first two are the tests' one Kubernetes binary,
// which acts according to its file name.
func (s *Stage) startMirror(ctx context.Context) error {
	plugins := fmt.Sprintf("/cni/v%s/cni-plugins-linux-amd64-v%[1]s.tgz", cloudconfig.CNIPluginsVersion)
	s.mirror = &mirror{files: map[string]string{plugins: s.tool("cni-plugins")}, served: map[string]int{}}
	s.mirror.add(versions.Catalog.Kubernetes, s.tool("kubeall"))
	if s.options.Next {
		following, err := s.NextVersions(ctx)
		if err != nil {
			return err
		}
		s.mirror.add(following.Kubernetes, s.tool(filepath.Join(next, "kubeall")))
	}
	for _, file := range s.mirror.files {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("the mirror lacks %s: %w (run `make tools`)", filepath.Base(file), err)
		}
	}
	listener, err := s.Cluster.Listen(ctx, "tcp", net.JoinHostPort(s.Cluster.Address(), mirrorPort))
	if err != nil {
		return err
	}
	s.mirror.server = &http.Server{Handler: s.mirror, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.mirror.server.Serve(listener) }() // it ends with Close
	return nil
}

// add makes the mirror serve a version of Kubernetes.
func (m *mirror) add(version, kubeall string) {
	for _, name := range []string{"kubelet", "kubectl"} {
		m.files["/kubernetes/v"+version+"/bin/linux/amd64/"+name] = kubeall
	}
}

// next is the directory below .tools with the output of `make next-tools`.
const next = "next"

// NextVersions returns the versions of Kubernetes and etcd in NextImage.
func (s *Stage) NextVersions(ctx context.Context) (v1alpha1.Versions, error) {
	var found [2]string
	for i, arguments := range [][]string{{"kubelet", "--version"}, {"etcd", "--version"}} {
		said, err := exec.CommandContext(ctx, s.tool(filepath.Join(next, "kubeall")), arguments...).Output()
		if err != nil {
			return v1alpha1.Versions{}, fmt.Errorf("asking %s of the next version: %w (run `make next-tools`)", arguments[0], err)
		}
		line, _, _ := strings.Cut(string(said), "\n") // "Kubernetes v1.36.3", "etcd Version: 3.6.8"
		found[i] = strings.TrimPrefix(line[strings.LastIndex(line, " ")+1:], "v")
	}
	return v1alpha1.Versions{Kubernetes: found[0], Etcd: found[1]}, nil
}

// values returns the chart's settings that make nodes use the mirror.
func (m *mirror) values(address string) []string {
	base := "http://" + net.JoinHostPort(address, mirrorPort)
	return []string{"binaries.url=" + base + "/kubernetes", "cniPlugins.url=" + base + "/cni"}
}

// ServeHTTP serves the files, and their checksums as <file>.sha256.
func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, wantsSum := strings.CutSuffix(r.URL.Path, ".sha256")
	file, known := m.files[path]
	if !known {
		http.NotFound(w, r)
		return
	}
	if !wantsSum {
		m.mu.Lock()
		m.served[filepath.Base(path)]++
		m.mu.Unlock()
		http.ServeFile(w, r, file)
		return
	}
	sum, err := checksum(file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, sum+"\n")
}

func checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func (m *mirror) stop() error {
	if m == nil || m.server == nil {
		return nil
	}
	if err := m.server.Close(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Downloaded returns the names of the files that nodes have downloaded from the mirror so far.
func (s *Stage) Downloaded() []string {
	s.mirror.mu.Lock()
	defer s.mirror.mu.Unlock()
	var names []string
	for name := range s.mirror.served {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
