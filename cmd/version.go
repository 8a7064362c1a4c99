package cmd

import (
	"runtime"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/project"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print version and build of this binary",
		Example: "  kvm-operator version",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := yaml.Marshal(map[string]any{
				"description": project.Description, "gitCommit": project.Commit(), "name": project.Name,
				"source": project.Source, "version": project.Version(), "goVersion": runtime.Version(),
				"os": runtime.GOOS, "arch": runtime.GOARCH,
			})
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
}
