package kubevirtguest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/realkubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// declaration is a Machine that boots Debian, whose cloud-init makes a file system on its disk for data at the first
// boot, adds a line to a file there at each boot, and serves it. The system disk is new at each boot.
const declaration = `
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: NAME}
spec:
  resources: {cpu: {cores: 1}, memory: {size: 768Mi}}
  disks:
  - {name: root, source: {containerDisk: {image: "` + diskImage + `"}}}
  - {name: data, size: 64Mi, storageClass: NAME-data, accessMode: ReadWriteOnce}
  domain: {firmware: {bootloader: {efi: true, secureBoot: false}}}
  cloudInit:
    userData: |
      #cloud-config
      hostname: NAME
      runcmd:
      - [sh, -c, "blkid -t LABEL=data || mkfs.ext4 -qL data /dev/vdb"]
      - [sh, -c, "mkdir -p /srv && mount LABEL=data /srv && echo boot of $(hostname) >>/srv/boots && sync"]
      - [systemd-run, --working-directory=/srv, python3, -m, http.server, "8000"]
`

// declare creates a Machine with a place for its data, which is deleted at the end of the test.
func declare(t *testing.T, name string) {
	t.Helper()
	class := name + "-data"
	// The directory is the storage of a claim. Drivers give what they make to the group of the pod; this one is made here.
	directory := filepath.Join(t.TempDir(), "data")
	if err := errors.Join(os.Mkdir(directory, 0o777), os.Chmod(directory, 0o777), os.Chmod(filepath.Dir(directory), 0o755)); err != nil {
		t.Fatal(err)
	}
	volume, err := yaml.Marshal(blockdevice.Directory(class, directory))
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, string(volume), "apply", "--filename=-")
	kubectl(t, "{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: "+class+"}, provisioner: kubernetes.io/no-provisioner}",
		"apply", "--filename=-")
	kubectl(t, strings.ReplaceAll(declaration, "NAME", name), "apply", "--filename=-")
	t.Cleanup(func() {
		for _, object := range []string{"machine/" + name, "storageclass/" + class, "pv/" + class} {
			if _, err := cluster.Kubectl(context.Background(), "--namespace="+namespace, "delete", object, "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
}

// boots waits until the guest of a Machine serves what it has written at each boot.
func boots(t *testing.T, name string, times int) {
	t.Helper()
	want := strings.Repeat("boot of "+name+"\n", times)
	await(t, boot, fmt.Sprintf("boot %d of guest %s has an answer", times, name), func(ctx context.Context) error {
		m, err := machine(ctx, name)
		if err != nil {
			return err
		}
		if len(m.Status.IPAddresses) == 0 {
			return errors.New("the Machine has no address")
		}
		got, err := ask(ctx, m.Status.IPAddresses[0])
		if err == nil && got != want {
			err = fmt.Errorf("the guest has written %q, want %q", got, want)
		}
		return err
	})
}

// gone waits until nothing of a Machine is left: no object, and no emulator on the node.
func gone(t *testing.T, name string) {
	t.Helper()
	await(t, patience, "nothing is left of Machine "+name, func(ctx context.Context) error {
		left, err := cluster.Kubectl(ctx, "--namespace="+namespace, "get", "machines,vm,vmi,pods,pvc,secrets", "--output=name")
		if err == nil && strings.TrimSpace(left) != "" {
			err = fmt.Errorf("there are %q", left)
		}
		return err
	})
	if left := guests(t); len(left) > 0 {
		t.Errorf("emulators of deleted Machines run: %v", left)
	}
}

// TestMachineBootsAGuest: a Machine boots a real guest, which cloud-init sets up, and whose address answers. Its status
// says what the guest agent knows. Stopped and started again it has the data of before, and deleted it leaves nothing.
func TestMachineBootsAGuest(t *testing.T) {
	const name = "debian"
	declare(t, name)
	becomes(t, patience, name, v1alpha1.PhaseRunning, nil)
	boots(t, name, 1)
	m := becomes(t, patience, name, v1alpha1.PhaseRunning, func(m *v1alpha1.Machine) bool { return m.Status.OperatingSystem != "" })
	if !strings.HasPrefix(m.Status.OperatingSystem, "Debian") || m.Status.NodeName != cluster.Node(0).Name() {
		t.Errorf("the status is %+v; the guest is Debian on %s", m.Status, cluster.Node(0).Name())
	}

	power(t, name, "stop")
	becomes(t, patience, name, v1alpha1.PhaseStopped, nil)
	if running := guests(t); len(running) > 0 {
		t.Errorf("emulators of stopped Machines run: %v", running)
	}
	power(t, name, "start")
	becomes(t, patience, name, v1alpha1.PhaseRunning, nil)
	boots(t, name, 2)

	kubectl(t, "", "delete", "machine", name, "--timeout="+patience.String())
	gone(t, name)
}

// TestGuestOutlivesKubeVirtAndReturnsAfterItsOwnEnd: a guest runs on without the operator of Machines, and while
// virt-handler, virt-controller and virt-api are replaced. When it ends by itself, KubeVirt starts it again, and its
// Machine is Running again.
func TestGuestOutlivesKubeVirtAndReturnsAfterItsOwnEnd(t *testing.T) {
	const name = "patient"
	declare(t, name)
	boots(t, name, 1)
	before := guests(t)

	replace(t, operatorNamespace, "app.kubernetes.io/name=kubevirt-operator")
	replace(t, realkubevirt.Namespace, "kubevirt.io in (virt-handler, virt-controller, virt-api)")
	becomes(t, patience, name, v1alpha1.PhaseRunning, nil)
	boots(t, name, 1)
	if after := guests(t); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("the emulators are %v, and were %v", after, before)
	}

	if _, err := cluster.Node(0).Exec(t.Context(), "kill", append([]string{"-KILL"}, before...)...); err != nil {
		t.Fatal(err)
	}
	boots(t, name, 2)
	becomes(t, patience, name, v1alpha1.PhaseRunning, nil)

	kubectl(t, "", "delete", "machine", name, "--timeout="+patience.String())
	gone(t, name)
}

// replace kills the pods that a selector names, as the end of their host does, and waits for the pods in their place.
func replace(t *testing.T, namespace, selector string) {
	t.Helper()
	pods := []string{"pods", "--namespace=" + namespace, "--selector=" + selector}
	if _, err := cluster.Kubectl(t.Context(), append([]string{"delete", "--force", "--grace-period=0"}, pods...)...); err != nil {
		t.Fatal(err)
	}
	await(t, patience, "other pods of "+namespace+" are ready", func(ctx context.Context) error {
		_, err := cluster.Kubectl(ctx, append([]string{"wait", "--for=condition=Ready", "--timeout=5s"}, pods...)...)
		return err
	})
}
