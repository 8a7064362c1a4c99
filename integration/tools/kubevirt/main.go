// Command kubevirt is KubeVirt's control plane in one program, for tests without virt-operator and its images:
//
//	kubevirt virt-api FLAGS         the webhooks and the subresources of virtual machines
//	kubevirt virt-controller FLAGS  creates instances of virtual machines and their pods
//	kubevirt manifests              prints what virt-operator applies and the two need, as YAML documents
//
// The flags are those of KubeVirt's own programs.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/client-go/log"
	"kubevirt.io/kubevirt/pkg/service"
	virtapi "kubevirt.io/kubevirt/pkg/virt-api"
	virtcontroller "kubevirt.io/kubevirt/pkg/virt-controller/watch"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
)

// namespace is where KubeVirt runs. Its programs assume this one when they run outside of pods.
const namespace = "kubevirt"

// definitions are the CRDs that virt-operator applies, and its own.
var definitions = []func() (*apiextensionsv1.CustomResourceDefinition, error){
	components.NewKubeVirtCrd,
	components.NewVirtualMachineInstanceCrd, components.NewPresetCrd, components.NewReplicaSetCrd,
	components.NewVirtualMachineCrd, components.NewVirtualMachineInstanceMigrationCrd,
	components.NewVirtualMachineSnapshotCrd, components.NewVirtualMachineSnapshotContentCrd,
	components.NewVirtualMachineRestoreCrd, components.NewVirtualMachineInstancetypeCrd,
	components.NewVirtualMachineClusterInstancetypeCrd, components.NewVirtualMachinePoolCrd,
	components.NewMigrationPolicyCrd, components.NewVirtualMachinePreferenceCrd,
	components.NewVirtualMachineClusterPreferenceCrd, components.NewVirtualMachineExportCrd,
	components.NewVirtualMachineCloneCrd, components.NewVirtualMachineBackupCrd,
	components.NewVirtualMachineBackupTrackerCrd,
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	command := os.Args[1]
	// KubeVirt's programs parse the arguments by themselves.
	os.Args = append([]string{command}, os.Args[2:]...)
	switch command {
	case "virt-api":
		log.InitializeLogging(command)
		api := virtapi.NewVirtApi()
		service.Setup(api)
		api.Execute()
	case "virt-controller":
		virtcontroller.Execute()
	case "manifests":
		if err := printManifests(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
	default:
		usage()
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: kubevirt virt-api|virt-controller|manifests FLAGS")
	os.Exit(2)
}

// printManifests prints one document for each object, in an order in which they can be created. Each is in YAML's form
// of JSON: the other one takes seconds to write and to read because the schemas have 60,000 lines.
func printManifests(w io.Writer) error {
	objects, err := manifests()
	if err != nil {
		return err
	}
	for _, object := range objects {
		document, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("encoding %T: %w", object, err)
		}
		if _, err := fmt.Fprintf(w, "---\n%s\n", document); err != nil {
			return fmt.Errorf("printing the manifests: %w", err)
		}
	}
	return nil
}

func manifests() ([]any, error) {
	objects := []any{&corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}}
	for _, definition := range definitions {
		crd, err := definition()
		if err != nil {
			return nil, fmt.Errorf("making a CRD: %w", err)
		}
		objects = append(objects, crd)
	}
	objects = add(objects, rbac.GetAllCluster())
	objects = add(objects, rbac.GetAllApiServer(namespace))
	objects = add(objects, rbac.GetAllController(namespace, true))
	objects = add(objects, rbac.GetAllHandler(namespace))
	objects = add(objects, components.NewCAConfigMaps(namespace))
	objects = append(objects, components.NewKubeVirtPriorityClassCR(), components.NewApiServerService(namespace),
		components.NewVirtAPIValidatingWebhookConfiguration(namespace),
		components.NewVirtAPIMutatingWebhookConfiguration(namespace),
		components.NewVirtLauncherPodMutatingWebhookConfiguration(namespace))
	return add(objects, components.NewVirtAPIAPIServices(namespace)), nil
}

func add[T any](objects []any, more []T) []any {
	for _, object := range more {
		objects = append(objects, object)
	}
	return objects
}
