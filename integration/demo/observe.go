package main

import (
	"context"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// nodeReady is the phase of a node that is Ready.
const nodeReady = "Ready"

// observation is the KVMConfig at one moment. It is nil when the KVMConfig does not exist.
type observation struct{ config *v1alpha1.KVMConfig }

// readKVMConfig reads a manifest of one KVMConfig.
func readKVMConfig(path string) (*v1alpha1.KVMConfig, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config := &v1alpha1.KVMConfig{}
	if err := yaml.UnmarshalStrict(content, config); err != nil {
		return nil, fmt.Errorf("reading the KVMConfig of %s: %w", path, err)
	}
	return config, nil
}

// observe reads the followed KVMConfig.
func (d *demo) observe(ctx context.Context) (observation, error) {
	config := &v1alpha1.KVMConfig{}
	err := d.client.Get(ctx, client.ObjectKeyFromObject(d.config), config)
	if apierrors.IsNotFound(err) {
		return observation{}, nil
	}
	if err != nil {
		return observation{}, fmt.Errorf("reading KVMConfig %s: %w", client.ObjectKeyFromObject(d.config), err)
	}
	return observation{config}, nil
}

// ready reports whether every step is done for the current generation of the KVMConfig.
func ready(o observation) bool {
	if o.config == nil {
		return false
	}
	c := meta.FindStatusCondition(o.config.Status.Conditions, "Ready")
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == o.config.Generation
}

func never(observation) bool { return false }
