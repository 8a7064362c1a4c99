package cmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/helm"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	vmoperatorv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/schema"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
)

// manifests holds the KVMConfigs, VirtualMachines and Machines from files and the objects that they depend on.
type manifests struct {
	configs  []*v1alpha1.KVMConfig
	machines []*vmoperatorv1.VirtualMachine
	releases map[string]*releasev1alpha1.Release
	secrets  []corev1.Secret
	volumes  []corev1.PersistentVolume
	kubevirt machineManifests
}

// inputs returns the objects that a KVMConfig depends on.
func (m manifests) inputs(config *v1alpha1.KVMConfig) cluster.Inputs {
	release := m.releases[versions.ReleaseName(config.Labels[key.LabelReleaseVersion])]
	return cluster.Inputs{Release: release, Secrets: m.secrets, Volumes: m.volumes}
}

// definitions are those of the kinds that are rendered, besides those of vitistack.io.
type definitions struct{ kvmConfig, virtualMachine *schema.Schema }

func newDefinitions() (definitions, error) {
	config, configErr := schema.New(helm.KVMConfigCRD)
	machine, machineErr := schema.New(helm.VirtualMachineCRD)
	return definitions{config, machine}, errors.Join(configErr, machineErr)
}

// readManifests reads the files, of which "-" is standard input. It ignores other kinds.
func readManifests(files []string, stdin io.Reader) (manifests, error) {
	m := manifests{releases: map[string]*releasev1alpha1.Release{}}
	d, err := newDefinitions()
	if err != nil {
		return m, err
	}
	for _, file := range files {
		data, err := readFile(file, stdin)
		if err != nil {
			return m, err
		}
		if err := m.add(d, data); err != nil {
			return m, fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(m.configs)+len(m.machines)+m.kubevirt.rendered() == 0 {
		return m, fmt.Errorf("no KVMConfig, VirtualMachine, Machine or NetworkConfiguration in %q", files)
	}
	return m, nil
}

func readFile(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		data, err := io.ReadAll(stdin)
		return data, microerror.Mask(err)
	}
	data, err := os.ReadFile(file)
	return data, microerror.Mask(err)
}

// add reads a stream of YAML documents, lists included.
func (m *manifests) add(d definitions, data []byte) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return microerror.Mask(err)
		}
		if err := m.addDocument(d, document); err != nil {
			return err
		}
	}
}

func (m *manifests) addDocument(d definitions, document []byte) error {
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return fmt.Errorf("reading YAML: %w", err)
	}
	u := &unstructured.Unstructured{}
	// This decoder keeps integers apart from other numbers, as the API server does.
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return fmt.Errorf("reading YAML: %w", err)
	}
	switch {
	case len(u.Object) == 0:
		return nil
	case u.IsList():
		return u.EachListItem(func(item runtime.Object) error {
			return m.addObject(d, item.(*unstructured.Unstructured))
		})
	}
	return m.addObject(d, u)
}

func (m *manifests) addObject(d definitions, u *unstructured.Unstructured) error {
	switch u.GroupVersionKind() {
	case v1alpha1.GroupVersion.WithKind("KVMConfig"):
		config, err := declared[v1alpha1.KVMConfig](d.kvmConfig, u)
		m.configs = append(m.configs, config)
		return err
	case vmoperatorv1.GroupVersion.WithKind("VirtualMachine"):
		machine, err := declared[vmoperatorv1.VirtualMachine](d.virtualMachine, u)
		m.machines = append(m.machines, machine)
		return err
	case releasev1alpha1.GroupVersion.WithKind("Release"):
		release, err := convert[releasev1alpha1.Release](u)
		m.releases[u.GetName()] = release
		return err
	case corev1.SchemeGroupVersion.WithKind("Secret"):
		secret, err := convert[corev1.Secret](u)
		m.secrets = append(m.secrets, *secret)
		return err
	case corev1.SchemeGroupVersion.WithKind("PersistentVolume"):
		volume, err := convert[corev1.PersistentVolume](u)
		m.volumes = append(m.volumes, *volume)
		return err
	}
	return m.kubevirt.add(u)
}

// declared returns an object with the defaults of its definition, which it has to meet.
func declared[T any](definition *schema.Schema, u *unstructured.Unstructured) (*T, error) {
	if u.GetNamespace() == "" {
		u.SetNamespace("default")
	}
	if err := definition.Complete(context.Background(), u.Object); err != nil {
		return nil, fmt.Errorf("%s %s is not valid: %w", u.GetKind(), u.GetName(), err)
	}
	return convert[T](u)
}

func convert[T any](u *unstructured.Unstructured) (*T, error) {
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		return object, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return object, nil
}
