package runner

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/noderunner"
	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

func newImage() *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "Get the image of a machine into the cache; the init container of a node pod",
		Long: `Get the image of a machine into the cache of its host, verified, so that the machine needs to read the cache only. Nothing is
downloaded when the image is there. The command takes the flags and variables of the runner that are about the image.`,
		Example: `  # a machine with the same flags then boots without a network
  kvm-operator runner image --flatcar-version=4459.2.1 --images=$HOME/.cache/images

  # the progress of a download
  kubectl -n <id> logs <pod> -c image -f`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return fetchImage(c) },
	}
	registerImage(c.Flags())
	nameVariables(c.Flags(), variables)
	return c
}

func fetchImage(c *cobra.Command) error {
	settings, terminationLog, err := loadImage(c.Flags(), os.LookupEnv)
	end := keeper.End{Reason: keeper.ReasonSettingsInvalid}
	if err != nil {
		end.Message = err.Error()
	} else {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		end = noderunner.FetchImage(ctx, settings, slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)))
	}
	if end.Reason.ExitCode() == 0 {
		return nil
	}
	return errorOf(end, keeper.WriteTermination(terminationLog, end, nil))
}
