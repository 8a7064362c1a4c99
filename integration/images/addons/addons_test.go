// Package addons tests the programs of add-ons as they are put into container images (images, ../build.sh). Each
// program does its job here, in real network namespaces and against a real API server.
package addons_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
)

const (
	// patience is the timeout for tests on a machine whose cores are shared with others.
	patience = time.Minute
	interval = 20 * time.Millisecond
)

// tool returns the path of a program that integration/build.sh has built.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", ".tools", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the program %s is missing: %v\nrun `make tools` in the repository root", name, err)
	}
	return path
}

// await waits until f returns no error.
func await(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := poll.Until(ctx, interval, nil, f); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// console collects the output of a program while others read it.
type console struct {
	mutex sync.Mutex
	bytes bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.bytes.Write(p)
}

func (c *console) String() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.bytes.String()
}

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestImagesAreOfTheVersionsThatAreBuilt(t *testing.T) {
	modules, images := readFile(t, "programs/go.mod"), readFile(t, "images")
	for name, module := range map[string]string{
		"registry.k8s.io/coredns/coredns": "github.com/coredns/coredns",
		"ghcr.io/flannel-io/flannel":      "github.com/flannel-io/flannel",
	} {
		built := regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(module) + ` (\S+)$`).FindStringSubmatch(modules)
		if built == nil {
			t.Fatalf("programs/go.mod does not require %s", module)
		}
		if !strings.Contains(images, "\n"+name+":"+built[1]+" ") {
			t.Errorf("images has no %s:%s, which is the version of programs/go.mod", name, built[1])
		}
	}
}
