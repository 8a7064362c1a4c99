package realcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// settings are the values for the files of config.
type settings struct {
	Dir, Name, Address, Cgroup, DNS, Domain, Socket string
	Pods, AllPods, Plugins, PauseImage              string
}

func (n *Node) settings() settings {
	return settings{
		Dir: n.dir(), Name: n.Name(), Address: n.Address(), Cgroup: n.cgroup(), DNS: siteAddress.String(), Domain: Domain,
		Socket: socket, Pods: podNetwork(n.number).String(), AllPods: allPods, PauseImage: pauseImage,
	}
}

func (n *Node) configureContainerd() error {
	values := n.settings()
	var err error
	if values.Plugins, err = pluginDir(); err != nil {
		return fmt.Errorf("finding the CNI plugins: %w", err)
	}
	return errors.Join(
		os.MkdirAll(n.path("cni"), 0o755),
		writeConfig(n.path("cni/pods.conflist"), "cni.conflist", values),
		writeConfig(n.path("containerd.toml"), "containerd.toml", values),
	)
}

func (n *Node) configureKubelet() error {
	plane := n.cluster.plane
	certificate, key, err := plane.ServingCertificate(n.Name(), nodeAddress(n.number).AsSlice())
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(n.path("kubelet.crt"), certificate, 0o644),
		os.WriteFile(n.path("kubelet.key"), key, 0o600),
		os.WriteFile(n.path("ca.crt"), plane.Authority(), 0o644),
		plane.WriteKubeconfig(n.path("kubelet.kubeconfig"), "system:node:"+n.Name(), "system:nodes"),
		writeConfig(n.path("kubelet.yaml"), "kubelet.yaml", n.settings()),
	)
}

func (n *Node) configureProxy() error {
	return errors.Join(
		n.cluster.plane.WriteKubeconfig(n.path("kube-proxy.kubeconfig"), "system:kube-proxy"),
		writeConfig(n.path("kube-proxy.yaml"), "kube-proxy.yaml", n.settings()),
	)
}

// importImages imports the images into containerd. Images that already exist cost little.
func (n *Node) importImages(ctx context.Context) error {
	began := time.Now()
	archives := append([]string{n.cluster.pauseArchive()}, n.cluster.options.Images...)
	for _, archive := range archives {
		if err := n.Import(ctx, archive); err != nil {
			return err
		}
	}
	n.cluster.say("%s: %d images are imported after %.1fs", n.Name(), len(archives), time.Since(began).Seconds())
	return nil
}

// Import imports the images of an archive into containerd. An image replaces another one of the same name.
func (n *Node) Import(ctx context.Context, archive string) error {
	if _, err := n.Exec(ctx, "ctr", "--namespace=k8s.io", "images", "import", archive); err != nil {
		return fmt.Errorf("importing image %s: %w", archive, err)
	}
	return nil
}

// join starts the parts of the node that belong to the cluster and returns when pods can be scheduled to it.
func (n *Node) join(ctx context.Context) error {
	if err := n.StartComponent(ctx, Kubelet); err != nil {
		return err
	}
	if err := n.StartComponent(ctx, KubeProxy); err != nil {
		return err
	}
	client, err := corev1client.NewForConfig(n.cluster.RESTConfig())
	if err != nil {
		return err
	}
	n.mu.Lock()
	kubelet := n.running[Kubelet]
	n.mu.Unlock()
	if kubelet == nil {
		return fmt.Errorf("kubelet of %s has ended: see %s", n.Name(), n.path("kubelet.log"))
	}
	began := time.Now()
	err = await(ctx, kubelet, n.Name(), func(ctx context.Context) error { return n.usable(ctx, client, began) })
	if err != nil {
		return err
	}
	n.cluster.say("%s is Ready after %.1fs", n.Name(), time.Since(began).Seconds())
	return nil
}

// usable returns why no pod can run on the node yet, and labels the node, because kubelet itself may not set every
// label. Conditions from before since are ignored because they are from before the node went down.
func (n *Node) usable(ctx context.Context, client corev1client.NodesGetter, since time.Time) error {
	labels := map[string]string{} // null would remove those of kubelet
	maps.Copy(labels, n.labels)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	node, err := client.Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
	if err == nil {
		err = ready(node, since)
	}
	switch {
	case err != nil:
		return err
	case len(node.Spec.Taints) > 0:
		return fmt.Errorf("node %s has the taints %v", n.Name(), node.Spec.Taints)
	}
	_, err = client.Nodes().Patch(ctx, n.Name(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// ready returns why a node is not Ready. Times in the API are in whole seconds.
func ready(node *corev1.Node, since time.Time) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady || condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			continue
		}
		if condition.Status == corev1.ConditionTrue {
			return nil
		}
		return fmt.Errorf("node %s is not Ready: %s", node.Name, condition.Message)
	}
	return fmt.Errorf("node %s has not said yet whether it is Ready", node.Name)
}
