package kubevirt

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// StartMachine asks virt-api's subresource to start a virtual machine, as `virtctl start` does.
func (k *KubeVirt) StartMachine(ctx context.Context, machine types.NamespacedName) error {
	return k.ask(ctx, machine, "start", map[string]any{})
}

// StopMachine asks virt-api's subresource to stop a virtual machine, as `virtctl stop` does.
func (k *KubeVirt) StopMachine(ctx context.Context, machine types.NamespacedName) error {
	return k.ask(ctx, machine, "stop", map[string]any{})
}

// RestartMachine asks virt-api's subresource to restart a virtual machine, as `virtctl restart` does.
func (k *KubeVirt) RestartMachine(ctx context.Context, machine types.NamespacedName) error {
	return k.ask(ctx, machine, "restart", map[string]any{})
}

// AddVolume asks virt-api's subresource to plug a claim into a virtual machine as a volume, as `virtctl addvolume
// --persist` does. virt-controller changes the virtual machine later.
func (k *KubeVirt) AddVolume(ctx context.Context, machine types.NamespacedName, volume, claim string) error {
	return k.ask(ctx, machine, "addvolume", map[string]any{
		"name":         volume,
		"disk":         map[string]any{"name": volume, "disk": map[string]any{"bus": "scsi"}},
		"volumeSource": map[string]any{"persistentVolumeClaim": map[string]any{"claimName": claim}},
	})
}

// RemoveVolume asks virt-api's subresource to unplug a volume that AddVolume has added.
func (k *KubeVirt) RemoveVolume(ctx context.Context, machine types.NamespacedName, volume string) error {
	return k.ask(ctx, machine, "removevolume", map[string]any{"name": volume})
}

// ask sends a request to a subresource, through the API server.
func (k *KubeVirt) ask(ctx context.Context, machine types.NamespacedName, subresource string, options map[string]any) error {
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encoding the options of %s: %w", subresource, err)
	}
	clients, err := kubernetes.NewForConfig(k.cluster.RESTConfig())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	err = clients.Discovery().RESTClient().Put().
		AbsPath("/apis/subresources.kubevirt.io/v1/namespaces", machine.Namespace, "virtualmachines", machine.Name, subresource).
		Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("asking virt-api to %s %s: %w", subresource, machine, err)
	}
	return nil
}
