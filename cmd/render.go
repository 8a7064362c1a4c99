package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/giantswarm/microerror"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/service"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
	"github.com/kvm-operator/kvm-operator/service/controller/virtualmachine"
)

// errNoDiff says what --diff cannot do.
var errNoDiff = errors.New("--diff cannot compare Machines and NetworkConfigurations; leave it out, or leave them out")

type renderOptions struct {
	files      []string
	diff       bool
	kubeconfig string
	handlers   []string
	// kubevirt are the settings of Machines.
	kubevirt *pflag.FlagSet
}

func newRender() *cobra.Command {
	o := renderOptions{kubevirt: pflag.NewFlagSet("machines", pflag.ContinueOnError)}
	c := &cobra.Command{
		Use:   "render",
		Short: "Print every object that the operator creates for a KVMConfig, a VirtualMachine or a Machine",
		Long: `Print, as YAML, every object that the operator creates for the KVMConfigs, VirtualMachines, Machines and
NetworkConfigurations in the files. No cluster is needed.

The files may also hold what a KVMConfig depends on: its Release, its Secrets and the PersistentVolumes of host volumes.
Certificates and keys that no Secret among them holds are placeholders.

For Machines they may hold NetworkConfigurations, MachineClasses, StorageClasses, Secrets and ConfigMaps. Without any
StorageClass those that are needed are assumed to exist. Their settings are flags and variables of the environment, as
those of kvm-operator machines are. MAC addresses and UUIDs follow from the UID, so those of a Machine that was not read
from a cluster are not the final ones.

With --diff the objects are compared with those of a running management cluster, where Release, Secrets and volumes are
read too; nothing is changed. The command then exits with 1 when there is a difference. Machines cannot be compared.
Values of Secrets are never shown.`,
		Example: `  kvm-operator render -f docs/examples/minimal.yaml
  kubectl get kvmconfig abc12 -o yaml | kvm-operator render -f -
  kvm-operator render -f cluster.yaml --handler deployment,service
  kvm-operator render -f machine.yaml --templates-file=templates.yaml
  kvm-operator render -f cluster.yaml --diff --kubeconfig $HOME/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runRender(c, o) },
	}
	flag.Register(c.Flags(), runnerImage(), vmRunnerImage())
	flag.RegisterMachineObjects(o.kubevirt)
	c.Flags().AddFlagSet(o.kubevirt)
	c.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "files with KVMConfigs, VirtualMachines or Machines, and what they depend on; - is standard input")
	c.Flags().BoolVar(&o.diff, "diff", false, "compare with a running management cluster")
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig for --diff; empty means KUBECONFIG or ~/.kube/config")
	c.Flags().StringSliceVar(&o.handlers, "handler", nil, "print only the objects of these handlers")
	_ = c.MarkFlagRequired("filename") // the flag was defined above
	return c
}

func runRender(c *cobra.Command, o renderOptions) error {
	if err := flag.Load(c.Flags(), os.LookupEnv); err != nil {
		return err
	}
	if err := validate(c.Flags(), checks); err != nil {
		return err
	}
	if err := clusterSettings(c.Flags()).Validate(); err != nil {
		return err
	}
	read, err := readManifests(o.files, c.InOrStdin())
	if err != nil {
		return err
	}
	live, err := compared(o, read)
	if err != nil {
		return err
	}
	renderings, err := renderAll(c, o, read, live)
	if err != nil {
		return err
	}
	if err := checkHandlers(o.handlers, renderings); err != nil {
		return err
	}
	differs := false
	for _, r := range renderings {
		changed, err := show(c, live, r.of(o.handlers))
		if err := errors.Join(r.err, err); err != nil {
			return fmt.Errorf("%s: %w", r.ref, err)
		}
		differs = differs || changed
	}
	if differs {
		return errDiffers
	}
	return nil
}

// compared returns the client of the management cluster to compare with; nil for none.
func compared(o renderOptions, read manifests) (client.Client, error) {
	if !o.diff {
		return nil, nil
	}
	if read.kubevirt.rendered() > 0 {
		return nil, errNoDiff
	}
	return liveClient(o.kubeconfig)
}

// rendering is what an object leads to. err says what could not be rendered.
type rendering struct {
	ref      string
	rendered []apply.Rendered
	err      error
}

// renderAll renders all objects. The error is about reading from the management cluster, or settings.
func renderAll(c *cobra.Command, o renderOptions, read manifests, live client.Client) ([]rendering, error) {
	var all []rendering
	for _, config := range read.configs {
		inputs := read.inputs(config)
		if live != nil {
			found, err := cluster.ReadInputs(c.Context(), live, config)
			if err != nil {
				return nil, err
			}
			inputs = found
		}
		rendered, err := cluster.Render(c.Context(), clusterSettings(c.Flags()), config, inputs)
		all = append(all, rendering{fmt.Sprintf("KVMConfig %s/%s", config.Namespace, config.Name), rendered, err})
	}
	for _, vm := range read.machines {
		var inputs virtualmachine.Inputs
		if live != nil {
			found, err := virtualmachine.ReadInputs(c.Context(), live, vm)
			if err != nil {
				return nil, err
			}
			inputs = found
		}
		rendered, err := virtualmachine.Render(machineSettings(c.Flags()), vm, inputs)
		all = append(all, rendering{fmt.Sprintf("VirtualMachine %s/%s", vm.Namespace, vm.Name), rendered, err})
	}
	ofKubeVirt, err := read.kubevirt.render(o.kubevirt, read.secrets)
	return append(all, ofKubeVirt...), err
}

// of returns the objects of some handlers; without names, those of all.
func (r rendering) of(handlers []string) []client.Object {
	var objects []client.Object
	for _, part := range r.rendered {
		if len(handlers) == 0 || slices.Contains(handlers, part.Handler) {
			objects = append(objects, part.Objects...)
		}
	}
	return objects
}

// show prints the objects. If live is set, it prints how the cluster differs from them and reports whether it differs.
func show(c *cobra.Command, live client.Client, objects []client.Object) (bool, error) {
	if live != nil {
		return diff(c.Context(), c.OutOrStdout(), live, objects)
	}
	return false, printAll(c.OutOrStdout(), objects)
}

// checkHandlers rejects misspelled handlers because they would silently print nothing.
func checkHandlers(handlers []string, renderings []rendering) error {
	var names []string
	for _, r := range renderings {
		for _, part := range r.rendered {
			if !slices.Contains(names, part.Handler) {
				names = append(names, part.Handler)
			}
		}
	}
	for _, h := range handlers {
		if len(names) > 0 && !slices.Contains(names, h) {
			return fmt.Errorf("there is no handler %q; the handlers are %s", h, strings.Join(names, ", "))
		}
	}
	return nil
}

func liveClient(kubeconfig string) (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, microerror.Mask(err)
	}
	scheme, err := service.NewScheme()
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	return live, microerror.Mask(err)
}

func printAll(w io.Writer, objects []client.Object) error {
	for _, object := range objects {
		text, err := toYAML(object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// diff prints how the cluster differs from the objects and reports whether it differs.
func diff(ctx context.Context, w io.Writer, live client.Client, objects []client.Object) (bool, error) {
	differs := false
	for _, object := range objects {
		text, err := diffOne(ctx, live, object)
		if err != nil {
			return false, err
		}
		differs = differs || text != ""
		if _, err := io.WriteString(w, text); err != nil {
			return false, err
		}
	}
	return differs, nil
}
