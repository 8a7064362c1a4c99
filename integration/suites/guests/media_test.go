package guests_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
	"github.com/kvm-operator/kvm-operator/service"
)

// disc is the image of a CD.
var disc = bytes.Repeat([]byte("0123456789abcdef"), 8<<10)

// TestCDsOfARunningMachine: a CD comes from a URL and from the image repository, and goes, while the machine runs. QEMU of
// the runner's image reads the URL.
func TestCDsOfARunningMachine(t *testing.T) {
	s := newStage(t, "cds")
	served, asked := s.serveDisc(t)
	repository := t.TempDir()
	if err := os.WriteFile(filepath.Join(repository, "disc.iso"), disc, 0o644); err != nil {
		t.Fatal(err)
	}
	s.Create(t, blockdevice.Directory("cds-images", repository))
	s.Create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "images"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("cds-images"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	})
	s.operate(t, func(c *service.Config) { c.VirtualMachines.ImageRepository = "images" })
	vm := s.newTiny(t, "cds")
	vm.Spec.VM.Networks = []v1.Network{{User: &v1.UserNetwork{}}}
	vm.Spec.VM.Disks = append(vm.Spec.VM.Disks, v1.Disk{CDROM: &v1.CDROM{Image: ""}})
	s.start(t, vm)
	s.isBack(t, vm, 1)

	const file = "/dev/fdset/" // the runner hands QEMU an open file
	for _, step := range []struct{ image, medium string }{{served, served}, {"disc.iso", file}, {"", ""}, {"disc.iso", file}} {
		s.set(t, vm, func(vm *v1.VM) { vm.Disks[1].CDROM.Image = step.image })
		s.becomes(t, vm, fmt.Sprintf("with the CD %q", step.image), func(s v1.VirtualMachineStatus) bool {
			return runs(s) && meta.IsStatusConditionTrue(s.Conditions, "ChangesApplied")
		})
		lab.Eventually(t, s.patience, func() error { return s.hasMedium(t, vm, step.medium) })
	}
	if asked.Load() == 0 {
		t.Error("QEMU has read nothing from the URL")
	}

	s.set(t, vm, func(vm *v1.VM) { vm.Disks[1].CDROM.Image = strings.Replace(served, "remote.iso", "missing.iso", 1) })
	s.becomes(t, vm, "without the CD that is missing", func(s v1.VirtualMachineStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, "ChangesApplied")
		return c != nil && c.Reason == virtualmachine.ReasonMediumNotInserted
	})
	t.Log(meta.FindStatusCondition(vm.Status.Conditions, "ChangesApplied").Message)
}

// serveDisc serves the disc to pods, and returns its URL and how often it was asked for.
func (s stage) serveDisc(t *testing.T) (url string, asked *atomic.Int32) {
	t.Helper()
	listener, err := s.cluster.Listen(t.Context(), "tcp", net.JoinHostPort(s.cluster.Address(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	asked = &atomic.Int32{}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/remote.iso" {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		http.ServeContent(w, r, "remote.iso", time.Time{}, bytes.NewReader(disc))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return fmt.Sprintf("http://%s/remote.iso", listener.Addr()), asked
}

// hasMedium returns an error unless QEMU has the disc, under this name, in the CD drive of a machine; empty for none.
func (s stage) hasMedium(t *testing.T, vm *v1.VirtualMachine, want string) error {
	t.Helper()
	output, err := s.cluster.Kubectl(t.Context(), "--namespace="+s.namespace, "exec", virtualmachine.PodName(vm.Name), "--", virtualmachine.Binary, "runner", "qmp", `{"execute":"query-block"}`)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(output, " ", "")
	size := fmt.Sprintf(`"virtual-size":%d`, len(disc))
	if has := strings.Contains(text, size); has != (want != "") || !strings.Contains(text, want) {
		return fmt.Errorf("the drive has %s, want %q", text, want)
	}
	return nil
}

// TestViewerSeesTheScreen: a SPICE client takes a picture of a machine through kubectl port-forward, with the password of
// its Secret alone.
func TestViewerSeesTheScreen(t *testing.T) {
	s := newStage(t, "viewer")
	s.operate(t)
	vm := s.newTiny(t, "viewer")
	vm.Spec.VM.Display = &v1.Display{SPICE: &v1.SPICE{Port: 5900}}
	s.start(t, vm)
	s.isBack(t, vm, 1)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: virtualmachine.DisplaySecretName(vm.Name)}}
	s.Get(t, secret)
	password := string(secret.Data[vmconfig.DisplayPassword])
	port := s.forward(t, vm)

	picture := filepath.Join(t.TempDir(), "screen.ppm")
	if output, err := screenshot(t, port, password, picture); err != nil {
		t.Fatalf("with the password: %v: %s", err, output)
	}
	content, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if header := "P6\n720 400\n255\n"; !strings.HasPrefix(string(content), header) || len(bytes.Trim(content[len(header):], "\x00")) == 0 {
		t.Errorf("the picture has %d bytes, and begins with %q", len(content), content[:min(len(content), 20)])
	}
	output, err := screenshot(t, port, "guess", filepath.Join(t.TempDir(), "none.ppm"))
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 1 {
		t.Errorf("with another password: %v: %s", err, output)
	}
}

// screenshot takes a picture of a display. The program ends with 1 if it may not.
func screenshot(t *testing.T, port, password, file string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("spicy-screenshot")
	if err != nil {
		t.Fatalf("%v; run `make tools`", err)
	}
	command := exec.CommandContext(t.Context(), "timeout", "60", program, "--host=127.0.0.1", "--port="+port, "--password="+password, "--out-file="+file)
	output, err := command.CombinedOutput()
	return string(output), err
}

// forward runs kubectl port-forward to the display of a machine until the end of the test, and returns its port here.
func (s stage) forward(t *testing.T, vm *v1.VirtualMachine) (port string) {
	t.Helper()
	kubeconfig, err := s.cluster.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(tools, "kubectl"), "--kubeconfig="+kubeconfig, "--namespace="+s.namespace, "port-forward", virtualmachine.PodName(vm.Name), ":5900")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line := make([]byte, 200)
	n, err := output.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	// Forwarding from 127.0.0.1:36171 -> 5900
	_, rest, _ := strings.Cut(string(line[:n]), "127.0.0.1:")
	port, _, _ = strings.Cut(rest, " ")
	return port
}
