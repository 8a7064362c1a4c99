package cmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kvm-operator/kvm-operator/flag"
)

// podNamespace is where a pod finds the name of its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// connection is a connection to an API server, and the namespace that belongs to it.
type connection struct {
	rest      *rest.Config
	namespace string
}

// machinesConnection connects with a kubeconfig, or several as in kubectl's KUBECONFIG, or as the pod that this runs in.
func machinesConnection(path string) (connection, error) {
	if path == "" {
		return podConnection()
	}
	fail := func(err error) (connection, error) {
		return connection{}, fmt.Errorf("%s (--%s) is %q and has to be the path of a kubeconfig: %w",
			flag.MachinesVariable(flag.MachinesKubeconfig), flag.MachinesKubeconfig, path, err)
	}
	paths := filepath.SplitList(path)
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			return fail(err) // files that do not exist would be left out in silence
		}
	}
	content, err := (&clientcmd.ClientConfigLoadingRules{Precedence: paths}).Load()
	if err != nil {
		return fail(err)
	}
	loaded := clientcmd.NewDefaultClientConfig(*content, &clientcmd.ConfigOverrides{})
	config, err := loaded.ClientConfig()
	if err != nil {
		return fail(err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return fail(err)
	}
	return connection{config, namespace}, nil
}

func podConnection() (connection, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return connection{}, fmt.Errorf("%s is not set and this does not run in a pod: set it, or --%s, to the path of a kubeconfig",
			flag.MachinesVariable(flag.MachinesKubeconfig), flag.MachinesKubeconfig)
	}
	if err != nil {
		return connection{}, fmt.Errorf("reading the service account of the pod: %w", err)
	}
	namespace, err := os.ReadFile(podNamespace)
	if err != nil {
		return connection{}, fmt.Errorf("reading the namespace of the pod: %w", err)
	}
	return connection{config, strings.TrimSpace(string(namespace))}, nil
}
