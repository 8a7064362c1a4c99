package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fieldOwner is the name under which the demo applies manifests, that of `kubectl apply --server-side`: a user who
// applies an edited manifest meets no conflict.
const fieldOwner = "kubectl"

// applyCRDs applies the chart's CRDs and returns when the API server serves all of them.
func (d *demo) applyCRDs(ctx context.Context) error {
	applied, err := d.applyDirectory(ctx, crds)
	if err != nil {
		return err
	}
	for _, crd := range applied {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			err := d.client.Get(ctx, client.ObjectKeyFromObject(crd), crd)
			return conditionStatus(crd, "Established") == "True", err
		})
		if err != nil {
			return fmt.Errorf("waiting until the API server serves CRD %s (conditions %v): %w", crd.GetName(), conditions(crd), err)
		}
	}
	return nil
}

// applyExamples applies the examples; the first KVMConfig is the one that the demo follows.
func (d *demo) applyExamples(ctx context.Context) error {
	applied, err := d.applyDirectory(ctx, examples)
	if err != nil {
		return err
	}
	for _, object := range applied {
		if object.GetKind() == "KVMConfig" {
			d.config = client.ObjectKeyFromObject(object)
			return nil
		}
	}
	return fmt.Errorf("%s contains no KVMConfig", examples)
}

// applyDirectory applies every YAML file of a directory of the checkout, in the order of their names.
func (d *demo) applyDirectory(ctx context.Context, dir string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(d.state.root, dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no YAML files in %s", dir)
	}
	var applied []*unstructured.Unstructured
	for _, file := range files {
		objects, err := readManifest(file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, object := range objects {
			err := d.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldOwner))
			if err != nil {
				return nil, fmt.Errorf("applying %s %s of %s: %w", object.GetKind(), object.GetName(), file, err)
			}
			applied = append(applied, object)
		}
	}
	return applied, nil
}

// readManifest reads all objects of a YAML file.
func readManifest(file string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
