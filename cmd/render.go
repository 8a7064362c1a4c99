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
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/service"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
)

type renderOptions struct {
	files      []string
	diff       bool
	kubeconfig string
	handlers   []string
}

func newRender() *cobra.Command {
	var o renderOptions
	c := &cobra.Command{
		Use:   "render",
		Short: "Print every object that a KVMConfig leads to",
		Long: `Print, as YAML, every object that the KVMConfigs in the files lead to. No cluster is needed.

The files may also hold what a KVMConfig depends on: its Release, its Secrets and the PersistentVolumes of host volumes.
Certificates and keys that no Secret among them holds are placeholders.

With --diff the objects are compared with those of a living management cluster, where Release, Secrets and volumes are
read too; nothing is changed. The command then exits with 1 when there is a difference. Values of Secrets are never shown.`,
		Example: `  kvm-operator render -f docs/examples/minimal.yaml
  kubectl get kvmconfig abc12 -o yaml | kvm-operator render -f -
  kvm-operator render -f cluster.yaml --handler deployment,service
  kvm-operator render -f cluster.yaml --diff --kubeconfig $HOME/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runRender(c, o) },
	}
	flag.Register(c.Flags(), runnerImage())
	c.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "files with KVMConfigs and what they depend on; - is standard input")
	c.Flags().BoolVar(&o.diff, "diff", false, "compare with a living management cluster")
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig for --diff; empty means KUBECONFIG or ~/.kube/config")
	c.Flags().StringSliceVar(&o.handlers, "handler", nil, "print only what these handlers want")
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
	var live client.Client
	if o.diff {
		if live, err = liveClient(o.kubeconfig); err != nil {
			return err
		}
	}
	differs := false
	for _, config := range read.configs {
		objects, renderErr := renderOne(c, o, read, config, live)
		changed, err := show(c, live, objects)
		if err := errors.Join(renderErr, err); err != nil {
			return fmt.Errorf("KVMConfig %s/%s: %w", config.Namespace, config.Name, err)
		}
		differs = differs || changed
	}
	if differs {
		return errDiffers
	}
	return nil
}

// show prints the objects. If live is set, it prints how the cluster differs from them and reports whether it differs.
func show(c *cobra.Command, live client.Client, objects []client.Object) (bool, error) {
	if live != nil {
		return diff(c.Context(), c.OutOrStdout(), live, objects)
	}
	return false, printAll(c.OutOrStdout(), objects)
}

// renderOne returns the objects of one KVMConfig and an error for what could not be rendered.
func renderOne(c *cobra.Command, o renderOptions, read manifests, config *v1alpha1.KVMConfig, live client.Client) ([]client.Object, error) {
	inputs := read.inputs(config)
	if live != nil {
		found, err := cluster.ReadInputs(c.Context(), live, config)
		if err != nil {
			return nil, err
		}
		inputs = found
	}
	rendered, err := cluster.Render(c.Context(), clusterSettings(c.Flags()), config, inputs)
	if unknown := checkHandlers(o.handlers, rendered); unknown != nil {
		return nil, unknown
	}
	var objects []client.Object
	for _, r := range rendered {
		if wanted(o.handlers, r.Handler) {
			objects = append(objects, r.Objects...)
		}
	}
	return objects, err
}

// checkHandlers rejects misspelt handlers because they would silently print nothing.
func checkHandlers(handlers []string, rendered []cluster.Rendered) error {
	var names []string
	for _, r := range rendered {
		names = append(names, r.Handler)
	}
	for _, h := range handlers {
		if len(names) > 0 && !slices.Contains(names, h) {
			return fmt.Errorf("there is no handler %q; the handlers are %s", h, strings.Join(names, ", "))
		}
	}
	return nil
}

func wanted(handlers []string, handler string) bool {
	return len(handlers) == 0 || slices.Contains(handlers, handler)
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
