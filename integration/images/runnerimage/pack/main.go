// Command pack writes an image of the runner without a container engine: an OCI archive of the layers of the system, whose
// tars are its arguments, the lowest first, and one with the runner, if there is one. The same inputs result in the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// epoch is the time of all files in the image.
var epoch = time.Unix(1700000000, 0).UTC()

type inputs struct {
	name, title, version, runner, out string
	command, user                     string
	environment, systems              []string
}

func main() {
	var in inputs
	flag.StringVar(&in.name, "name", "", "name of the image, with registry and tag")
	flag.StringVar(&in.title, "title", "", "title of the image, for a label")
	flag.StringVar(&in.version, "version", "", "version of the runner, for a label")
	flag.StringVar(&in.runner, "runner", "", "the runner's program, for a separate layer; empty if a layer has it")
	flag.StringVar(&in.command, "command", "runner", "the command of kvm-operator that the image runs")
	flag.StringVar(&in.user, "user", "", "the user and group that the image runs as, such as 1000:1000; empty for root")
	flag.StringVar(&in.out, "o", "", "archive to write")
	flag.Func("env", "variable of the container, as NAME=value; may be given several times", func(text string) error {
		in.environment = append(in.environment, text)
		return nil
	})
	flag.Parse()
	in.systems = flag.Args()
	if err := pack(in); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// canonical completes the name of an image of Docker Hub, as Docker and Kubernetes do. Nodes look for the complete name.
func canonical(image string) string {
	first, _, path := strings.Cut(image, "/")
	switch {
	case !path:
		return "docker.io/library/" + image
	case first == "localhost" || strings.ContainsAny(first, ".:"):
		return image
	default:
		return "docker.io/" + image
	}
}

func pack(in inputs) error {
	reference, err := name.NewTag(canonical(in.name), name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read name of image: %w", err)
	}
	var layers [][]byte
	for _, path := range in.systems {
		layer, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		layers = append(layers, layer)
	}
	if in.runner != "" {
		runner, err := runnerLayer(in.runner)
		if err != nil {
			return fmt.Errorf("pack runner: %w", err)
		}
		layers = append(layers, runner)
	}
	image, err := build(in, layers)
	if err != nil {
		return fmt.Errorf("build image: %w", err)
	}
	return writeArchive(in.out, reference, image, layers)
}
