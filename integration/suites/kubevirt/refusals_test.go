package kubevirt_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTheWebhooksRefuse(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for name, test := range map[string]struct {
		changes []string
		want    string
	}{
		"a machine without a run strategy": {
			[]string{"spec.runStrategy="}, "RunStrategy must be specified",
		},
		"running beside a run strategy": {
			[]string{"spec.running=true"}, "Running and RunStrategy are mutually exclusive",
		},
		"an unknown run strategy": {
			[]string{"spec.runStrategy=Sometimes"}, "Invalid RunStrategy (Sometimes)",
		},
		"a disk without a volume": {
			[]string{"spec.template.spec.volumes=[]"}, "Name 'root' not found",
		},
		"a volume without a source": {
			[]string{"spec.template.spec.volumes=[{name: root}]"}, "must have exactly one source",
		},
		"two devices with one place in the boot order": {
			[]string{"spec.template.spec.domain.devices.interfaces=[{name: default, masquerade: {}, bootOrder: 1}]"}, "Boot order",
		},
		"an interface without a network": {
			[]string{"spec.template.spec.networks=[]"}, "not found",
		},
		"masquerade outside of the pod's network": {
			[]string{"spec.template.spec.networks=[{name: default, multus: {networkName: front}}]"}, "asquerade interface only implemented with pod network",
		},
		"an unknown model of an interface": {
			[]string{"spec.template.spec.domain.devices.interfaces=[{name: default, masquerade: {}, model: ne3k}]"}, "ne3k",
		},
		"a MAC address of seven bytes": {
			[]string{"spec.template.spec.domain.devices.interfaces=[{name: default, masquerade: {}, macAddress: '02:00:00:00:00:00:01'}]"},
			"MAC",
		},
		"a disk on an IDE bus": {
			[]string{"spec.template.spec.domain.devices.disks=[{name: root, disk: {bus: ide}}]"}, "IDE bus is not supported",
		},
		"EFI with secure boot and without SMM": {
			[]string{"spec.template.spec.domain.firmware={bootloader: {efi: {}}}"}, "SMM",
		},
		"a machine type that the cluster does not allow": {
			[]string{"spec.template.spec.domain.machine={type: pc-i440fx-8.2}"}, "is not supported: pc-i440fx-8.2",
		},
		"cloud-init data of 2049 bytes inline": {
			[]string{
				"spec.template.spec.domain.devices.disks=[{name: root, disk: {bus: virtio}}, {name: init, disk: {bus: virtio}}]",
				"spec.template.spec.volumes=[{name: root, persistentVolumeClaim: {claimName: build-agent-root}}, " +
					"{name: init, cloudInitNoCloud: {userData: " + strings.Repeat("x", 2049) + "}}]",
			},
			"2048 byte limit",
		},
		"more sockets than the most": {
			[]string{"spec.template.spec.domain.cpu={cores: 1, threads: 1, sockets: 3, maxSockets: 2}"}, "Number of sockets",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := virt.Client().Create(t.Context(), p.object(machineYAML, test.changes...), client.DryRunAll)
			if err == nil {
				t.Fatal("it is accepted")
			}
			if text := err.Error(); !strings.Contains(text, "admission webhook") || !strings.Contains(text, test.want) {
				t.Errorf("the refusal is %q, which is no webhook's or does not contain %q", text, test.want)
			}
		})
	}
}

func TestTheWebhooksAccept(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for name, changes := range map[string][]string{
		"EFI without secure boot": {"spec.template.spec.domain.firmware={bootloader: {efi: {secureBoot: false}}}"},
		"machine type q35":        {"spec.template.spec.domain.machine={type: q35}"},
		"cloud-init data of 2048 bytes inline": {
			"spec.template.spec.domain.devices.disks=[{name: root, disk: {bus: virtio}}, {name: init, disk: {bus: virtio}}]",
			"spec.template.spec.volumes=[{name: root, persistentVolumeClaim: {claimName: build-agent-root}}, " +
				"{name: init, cloudInitNoCloud: {userData: " + strings.Repeat("x", 2048) + "}}]",
		},
		"a bridge to a network of the cluster": {
			"spec.template.spec.domain.devices.interfaces=[{name: default, bridge: {}, model: e1000e, bootOrder: 2}]",
			"spec.template.spec.networks=[{name: default, multus: {networkName: front}}]",
		},
		"Hyper-V's enlightenments": {
			"spec.template.spec.domain.features={hyperv: {relaxed: {enabled: true}, vapic: {enabled: true}, spinlocks: {enabled: true, spinlocks: 8191}}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := virt.Client().Create(t.Context(), p.object(machineYAML, changes...), client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}
