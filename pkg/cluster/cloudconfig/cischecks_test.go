package cloudconfig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
)

// bootedNode is what the benchmark inspects: the files of a node, the flags of its components, and the add-ons.
type bootedNode struct {
	master bool
	nodes  map[string]types.Node
	modes  map[string]int
	texts  map[string]string
	// flags are the flags of the components by name.
	flags map[string]map[string]string
	pods  map[string]corev1.Pod
	// kubelet is the kubelet's configuration.
	kubelet map[string]any
	addons  []client.Object
}

// inspection returns an error if something does not satisfy the benchmark.
type inspection func(*bootedNode) error

var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

func newBootedNode(t *testing.T, p Params) *bootedNode {
	t.Helper()
	data := mustRender(t, p)
	n := &bootedNode{
		master: p.master(), nodes: map[string]types.Node{}, modes: map[string]int{}, texts: map[string]string{},
		flags: map[string]map[string]string{"kubelet": flagValues(kubeletFlags(t, data))}, pods: map[string]corev1.Pod{},
	}
	for _, d := range data.Public.Storage.Directories {
		n.nodes[d.Path], n.modes[d.Path] = d.Node, *d.Mode
	}
	for _, f := range slices.Concat(data.Public.Storage.Files, data.Private.Storage.Files) {
		n.nodes[f.Path], n.modes[f.Path], n.texts[f.Path] = f.Node, *f.Mode, content(t, f)
	}
	if p.master() {
		for _, name := range controlPlane {
			n.pods[name] = staticPod(t, data, name)
			n.flags[name] = flagValues(n.pods[name].Spec.Containers[0].Command[1:])
		}
	}
	if err := yaml.Unmarshal([]byte(n.texts[kubeletConfigFile]), &n.kubelet); err != nil {
		t.Fatal(err)
	}
	var err error
	if n.addons, err = addOns(addons.Params{Cluster: p.Cluster, Versions: p.Versions, APIServerURL: p.APIServerURL}); err != nil {
		t.Fatal(err)
	}
	return n
}

// addOns returns the add-ons that a cluster has if none is disabled.
func addOns(p addons.Params) ([]client.Object, error) {
	network, err := addons.NetworkObjects(p)
	if err != nil {
		return nil, err
	}
	proxy, err := addons.KubeProxy(p)
	if err != nil {
		return nil, err
	}
	return slices.Concat(addons.RBAC(p), network, proxy, addons.CoreDNS(p)), nil
}

func flagValues(args []string) map[string]string {
	values := map[string]string{}
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		values[name] = value
	}
	return values
}

// all is met if each of the checks is.
func all(checks ...inspection) inspection {
	return func(n *bootedNode) error {
		var found []error
		for _, c := range checks {
			found = append(found, c(n))
		}
		return errors.Join(found...)
	}
}

// modes checks that each path is written, and that its mode allows no more than this one.
func modes(most int, paths ...string) inspection {
	return func(n *bootedNode) error {
		for _, path := range paths {
			if mode, ok := n.modes[path]; !ok || mode&^most != 0 {
				return fmt.Errorf("%s: written %t, mode %04o, want %04o at most", path, ok, mode, most)
			}
		}
		return nil
	}
}

// ofRoot checks that each path is written and owned by root, which it is if Ignition is given no owner.
func ofRoot(paths ...string) inspection {
	return func(n *bootedNode) error {
		for _, path := range paths {
			node, ok := n.nodes[path]
			if !ok || node.User != (types.NodeUser{}) || node.Group != (types.NodeGroup{}) {
				return fmt.Errorf("%s: written %t, owned by %v and %v", path, ok, node.User, node.Group)
			}
		}
		return nil
	}
}

// below applies a check to all paths of a directory, including the directory itself, with this suffix.
func below(directory, suffix string, c func(...string) inspection) inspection {
	return func(n *bootedNode) error {
		var paths []string
		for path := range n.nodes {
			if (path == directory || strings.HasPrefix(path, directory+"/")) && strings.HasSuffix(path, suffix) {
				paths = append(paths, path)
			}
		}
		if len(paths) == 0 {
			return fmt.Errorf("%s has no files *%s", directory, suffix)
		}
		return c(paths...)(n)
	}
}

// modesOf is modes for a directory's files.
func modesOf(most int) func(...string) inspection {
	return func(paths ...string) inspection { return modes(most, paths...) }
}

func flagIs(component, flag, want string) inspection {
	return func(n *bootedNode) error {
		if got, ok := n.flags[component][flag]; !ok || got != want {
			return fmt.Errorf("--%s of %s is %q, want %q", flag, component, got, want)
		}
		return nil
	}
}

// flagsAreSet checks that each has a value.
func flagsAreSet(component string, flags ...string) inspection {
	return func(n *bootedNode) error {
		for _, flag := range flags {
			if n.flags[component][flag] == "" {
				return fmt.Errorf("%s has no --%s", component, flag)
			}
		}
		return nil
	}
}

func flagIsUnset(component, flag string) inspection {
	return func(n *bootedNode) error {
		if value, ok := n.flags[component][flag]; ok || len(n.flags[component]) == 0 {
			return fmt.Errorf("%s has --%s=%s, or is not there", component, flag, value)
		}
		return nil
	}
}

// flagLists checks that the flag is a list with this element.
func flagLists(component, flag, element string) inspection {
	return func(n *bootedNode) error {
		if list := n.flags[component][flag]; !slices.Contains(strings.Split(list, ","), element) {
			return fmt.Errorf("--%s of %s is %q, want %s in it", flag, component, list, element)
		}
		return nil
	}
}

// flagLacks checks that the flag is not set, or is a list without the element.
func flagLacks(component, flag, element string) inspection {
	return func(n *bootedNode) error {
		if err := flagLists(component, flag, element)(n); err == nil || len(n.flags[component]) == 0 {
			return fmt.Errorf("--%s of %s has %s, or the component is not there", flag, component, element)
		}
		return nil
	}
}

func flagIsAtLeast(component, flag string, least int) inspection {
	return func(n *bootedNode) error {
		if value, err := strconv.Atoi(n.flags[component][flag]); err != nil || value < least {
			return fmt.Errorf("--%s of %s is %q, want %d at least", flag, component, n.flags[component][flag], least)
		}
		return nil
	}
}

// differ checks that two flags name different files.
func differ(component, one, other string) inspection {
	return func(n *bootedNode) error {
		if flags := n.flags[component]; flags[one] == flags[other] {
			return fmt.Errorf("--%s and --%s of %s are both %q", one, other, component, flags[one])
		}
		return nil
	}
}

// holds checks that the file contains this text.
func holds(path, text string) inspection {
	return func(n *bootedNode) error {
		if !strings.Contains(n.texts[path], text) {
			return fmt.Errorf("%s does not have %q", path, text)
		}
		return nil
	}
}

// kubeletHas checks a field of the kubelet's configuration, given by a path with dots.
func kubeletHas(field string, want any) inspection {
	return func(n *bootedNode) error {
		if got := kubeletField(n, field); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s of the kubelet is %v, want %v", field, got, want)
		}
		return nil
	}
}

// kubeletIsNot checks that the field is not set, or has another value than this.
func kubeletIsNot(field string, unwanted any) inspection {
	return func(n *bootedNode) error {
		if got := kubeletField(n, field); fmt.Sprint(got) == fmt.Sprint(unwanted) {
			return fmt.Errorf("%s of the kubelet is %v", field, got)
		}
		return nil
	}
}

func kubeletField(n *bootedNode, field string) any {
	var value any = n.kubelet
	for name := range strings.SplitSeq(field, ".") {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

// kubeletCiphers checks that the kubelet accepts only strong cipher suites.
func kubeletCiphers(n *bootedNode) error {
	list, _ := kubeletField(n, "tlsCipherSuites").([]any)
	var names []string
	for _, name := range list {
		names = append(names, fmt.Sprint(name))
	}
	return ciphersAreGood(names)
}

func flagCiphers(component, flag string) inspection {
	return func(n *bootedNode) error { return ciphersAreGood(strings.Split(n.flags[component][flag], ",")) }
}

// ciphersAreGood checks against the benchmark's list for kubelets, which is part of that for API servers.
func ciphersAreGood(names []string) error {
	good := []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
		"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
	}
	if len(names) == 0 {
		return errors.New("no ciphers are named")
	}
	for _, name := range names {
		if !slices.Contains(good, name) {
			return fmt.Errorf("cipher %q is not among the good ones", name)
		}
	}
	return nil
}
