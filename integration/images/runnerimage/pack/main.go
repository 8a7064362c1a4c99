// Command pack writes the runner's image without a container engine: an OCI archive of two layers, the system and the
// runner. The same inputs result in the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// epoch is the time of all files in the image.
var epoch = time.Unix(1700000000, 0).UTC()

type inputs struct{ name, version, system, runner, out string }

func main() {
	var in inputs
	flag.StringVar(&in.name, "name", "", "name of the image, with registry and tag")
	flag.StringVar(&in.version, "version", "", "version of the runner, for a label")
	flag.StringVar(&in.system, "system", "", "tar of the root file system, all but the runner")
	flag.StringVar(&in.runner, "runner", "", "the runner's program")
	flag.StringVar(&in.out, "o", "", "archive to write")
	flag.Parse()
	if err := pack(in); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func pack(in inputs) error {
	reference, err := name.NewTag(in.name, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read name of image: %w", err)
	}
	system, err := os.ReadFile(in.system)
	if err != nil {
		return err
	}
	runner, err := runnerLayer(in.runner)
	if err != nil {
		return fmt.Errorf("pack runner: %w", err)
	}
	layers := [][]byte{system, runner}
	image, err := build(in.version, layers)
	if err != nil {
		return fmt.Errorf("build image: %w", err)
	}
	return writeArchive(in.out, reference, image, layers)
}
