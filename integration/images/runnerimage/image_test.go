package runnerimage_test

import (
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qemu"
)

// regularFiles calls visit for each regular file of the image.
func (p *product) regularFiles(t *testing.T, visit func(path string, info fs.FileInfo)) {
	t.Helper()
	err := filepath.WalkDir(p.rootfs(t), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			visit(path, info)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheImageIsSmall(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		var size int64
		p.regularFiles(t, func(_ string, info fs.FileInfo) { size += info.Size() })
		t.Logf("%.1f MB", float64(size)/1e6)
		if float64(size) > p.maxSize {
			t.Errorf("the unpacked image has %.1f MB, want %.1f at most", float64(size)/1e6, p.maxSize/1e6)
		}
	})
}

func TestEveryProgramFindsItsLibraries(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		root, linked := p.rootfs(t), 0
		p.regularFiles(t, func(path string, _ fs.FileInfo) {
			libraries, directories := librariesOf(t, path)
			// The loader searches these by default, and without its cache, which the image does not have.
			directories = append(directories, "usr/lib/x86_64-linux-gnu", "usr/lib64")
			for _, library := range libraries {
				linked++
				if !slices.ContainsFunc(directories, func(directory string) bool {
					_, err := os.Stat(filepath.Join(root, directory, library))
					return err == nil
				}) {
					t.Errorf("%s is linked against %s, which is not there", strings.TrimPrefix(path, root), library)
				}
			}
		})
		if linked == 0 {
			t.Error("nothing is linked against anything")
		}
	})
}

// librariesOf returns the names of the libraries that a program is linked against, and its own directories for them. It
// returns none for other files.
func librariesOf(t *testing.T, path string) (libraries, directories []string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(content, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatalf("%s: %s", path, err)
	}
	libraries, err = file.ImportedLibraries()
	if err == nil {
		directories, err = file.DynString(elf.DT_RUNPATH)
	}
	if err != nil {
		t.Fatalf("%s: %s", path, err)
	}
	return libraries, directories
}

func TestTheRunnerCanCheckServersOfGuestImages(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		certificates, err := os.ReadFile(filepath.Join(p.rootfs(t), "etc/ssl/certs/ca-certificates.crt"))
		if err != nil {
			t.Fatal(err)
		}
		var count int
		for block, rest := pem.Decode(certificates); block != nil; block, rest = pem.Decode(rest) {
			if _, err := x509.ParseCertificate(block.Bytes); err != nil {
				t.Errorf("certificate %d: %s", count, err)
			}
			count++
		}
		if count < 100 {
			t.Errorf("there are %d certificate authorities, want more than 100", count)
		}
	})
}

// TestEveryPackageIsKnown: scanners look for descriptions of packages and the distribution, and licenses require their
// text.
func TestEveryPackageIsKnown(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		root := p.rootfs(t)
		descriptions, err := filepath.Glob(filepath.Join(root, "var/lib/dpkg/status.d/*"))
		if err != nil {
			t.Fatal(err)
		}
		var packages []string
		for _, path := range descriptions {
			name := filepath.Base(path)
			packages = append(packages, name)
			description, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(description, []byte("Package: "+name+"\n")) || !bytes.Contains(description, []byte("\nVersion: ")) {
				t.Errorf("the description of %s is:\n%s", name, description)
			}
			if _, err := os.Stat(filepath.Join(root, "usr/share/doc", name, "copyright")); err != nil {
				t.Error(err)
			}
		}
		for _, name := range p.packages {
			if !slices.ContainsFunc(packages, func(p string) bool { return p == name || strings.HasSuffix(name, "-") && strings.HasPrefix(p, name) }) {
				t.Errorf("%s is not among the packages %v", name, packages)
			}
		}
		if release, err := os.ReadFile(filepath.Join(root, "etc/os-release")); err != nil || !bytes.Contains(release, []byte("ID=debian")) {
			t.Errorf("os-release: %v\n%s", err, release)
		}
	})
}

// inGuest returns the path of a file in the container.
func inGuest(path string) string { return "/guest/" + filepath.Base(path) }

func TestQEMUOfTheImageStarts(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		said := p.start(t, nil, "qemu-system-x86_64", "--version").wait(t, helpTimeout)
		if !regexp.MustCompile(`^QEMU emulator version \d`).MatchString(said) {
			t.Errorf("qemu-system-x86_64 --version says:\n%s", said)
		}
	})
}

func TestTheRunnerOfTheImageStarts(t *testing.T) {
	ofEach(t, func(t *testing.T, p *product) {
		said := p.start(t, nil, nodepod.Binary, "runner", "--help").wait(t, helpTimeout)
		if !strings.Contains(said, "kvm-operator runner [flags]") {
			t.Errorf("runner --help says:\n%s", said)
		}
	})
}

// remarkPattern matches QEMU's own messages, such as those about missing optional files.
var remarkPattern = regexp.MustCompile(`(?m)^(qemu-system-x86_64: |Could not open ).*`)

func TestQEMUOfTheImageBootsAGuest(t *testing.T) {
	tiny := vm.Tiny(t)
	// QEMU's firmware starts the two kinds of kernels with different ROMs.
	elfKernel, bzImage := tiny.Kernel, filepath.Join(filepath.Dir(tiny.Kernel), "bzImage")
	tests := map[string]struct {
		machine qemu.Machine
		kernel  string
		want    []string
	}{
		"q35 with a share": {
			machine: qemu.Machine{Type: "q35", Shares: []qemu.Share{{Tag: "tmp", Path: "/tmp"}}}, kernel: elfKernel,
			want: []string{"tiny: share=tmp mounted", "tiny: ready"},
		},
		"q35 with a compressed kernel": {machine: qemu.Machine{Type: "q35"}, kernel: bzImage, want: []string{"tiny: ready"}},
		// It has its own firmware. What follows is not reliable: on a busy host a kernel often finds no working clock
		// in a microvm without KVM, and hangs.
		"microvm": {machine: qemu.Machine{Type: "microvm"}, kernel: elfKernel, want: []string{"Linux version"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := test.machine
			m.Name, m.Accelerator, m.CPU, m.Memory = "image", qemu.TCG, qemu.CPU{Count: 1}, 256
			m.Networks = []qemu.Network{{MAC: "52:54:00:12:34:56", User: &qemu.UserNetwork{}}}
			m.Kernel = &qemu.Kernel{
				Image: inGuest(test.kernel), Initrd: inGuest(tiny.Initrd),
				CommandLine: "console=ttyS0 nokaslr panic=-1 tiny.share=tmp",
			}
			arguments, err := m.Args()
			if err != nil {
				t.Fatal(err)
			}
			c := forNodes.start(t, []string{test.kernel, tiny.Initrd}, append([]string{"qemu-system-x86_64"}, arguments...)...)
			for _, text := range test.want {
				c.await(t, text, bootTimeout)
			}
			if remarks := remarkPattern.FindAllString(c.output.String(), -1); remarks != nil {
				t.Errorf("QEMU remarks %q", remarks)
			}
		})
	}
}

// TestTheRunnerOfTheImageRunsAGuest gives the runner the same paths as a node pod, which are the defaults.
func TestTheRunnerOfTheImageRunsAGuest(t *testing.T) {
	tiny := vm.Tiny(t).With("tiny.disk=rootfs")
	bootData := filepath.Join(t.TempDir(), nodepod.UserData)
	if err := os.WriteFile(bootData, []byte(vm.Pack(t, `{"ignition":{"version":"3.3.0"}}`)), 0o600); err != nil {
		t.Fatal(err)
	}
	description, err := json.Marshal(osimage.Image{
		Name: tiny.Name, KernelArguments: tiny.Arguments,
		Kernel: osimage.File{URL: "file://" + inGuest(tiny.Kernel)}, Initrd: osimage.File{URL: "file://" + inGuest(tiny.Initrd)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := forNodes.start(t, []string{tiny.Kernel, tiny.Initrd, bootData}, nodepod.Binary, "runner", "--name=image", "--memory=256M",
		"--network=user", "--acceleration=tcg", "--allow-emulation", "--image-directories=/", "--image="+string(description), "--disk=rootfs:64M", "--boot-data="+inGuest(bootData))
	c.await(t, fmt.Sprintf("tiny: disk=rootfs size=%d mounted", 64<<20), bootTimeout)
	c.await(t, "tiny: ready", bootTimeout)
}
