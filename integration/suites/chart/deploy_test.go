package chart_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// TestTargetsOfTheMakefileInstallSmolVMs: install, deploy, undeploy and uninstall do what smolvm-operator's do, in that
// order, with the definitions that install has left.
func TestTargetsOfTheMakefileInstallSmolVMs(t *testing.T) {
	l, err := lab.Start(t.Context(), managementcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	l.Client = administrator(t, l.Cluster)
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "smolvms.vm.smolvm.dev"}}
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMController}}
	runtime := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMRuntime}}

	target(t, l, "install")
	l.Get(t, definition)
	target(t, l, "deploy", "IMG=r/smolvm-operator:t", "RUNTIME_IMG=r/smolvm-runtime:t")
	l.Get(t, controller)
	l.Get(t, runtime)
	images := controller.Spec.Template.Spec.Containers[0].Image + " " + runtime.Spec.Template.Spec.Containers[0].Image
	if images != "r/smolvm-operator:t r/smolvm-runtime:t" {
		t.Errorf("the images are %s", images)
	}
	if operator := (&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMRelease}}); l.Exists(t, operator) {
		t.Error("the operator for clusters is deployed, too")
	}
	target(t, l, "undeploy")
	if l.Exists(t, controller) || l.Exists(t, runtime) || !l.Exists(t, definition) {
		t.Error("undeploy leaves a workload, or does not leave the definitions")
	}
	target(t, l, "uninstall")
	lab.Eventually(t, lab.Timeout, func() error {
		if l.Exists(t, definition) {
			return errors.New("the definition is there after uninstall")
		}
		return nil
	})
}

// TestInstallerInstallsSmolVMs: kubectl applies what build-installer writes, which is the same each time and has no token.
func TestInstallerInstallsSmolVMs(t *testing.T) {
	l, err := lab.Start(t.Context(), managementcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	l.Client = administrator(t, l.Cluster)
	file := filepath.Join(t.TempDir(), "dist", "install.yaml")
	var texts [2]string
	for i := range texts {
		target(t, l, "build-installer", "INSTALLER="+file, "IMG=r/smolvm-operator:t", "RUNTIME_IMG=r/smolvm-runtime:t")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] || strings.Contains(texts[0], "kind: Secret\n") {
		t.Error("the file differs from one time to the next, or has a Secret")
	}
	kubectl := exec.CommandContext(t.Context(), "../../../.tools/kubectl", "--kubeconfig="+l.Kubeconfig(), "apply", "--server-side", "--filename="+file)
	if output, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMController}}
	runtime := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: smolVMs, Name: smolVMRuntime}}
	l.Get(t, controller)
	l.Get(t, runtime)
	images := controller.Spec.Template.Spec.Containers[0].Image + " " + runtime.Spec.Template.Spec.Containers[0].Image
	if volume := runtime.Spec.Template.Spec.Volumes[3]; images != "r/smolvm-operator:t r/smolvm-runtime:t" || volume.Secret == nil || volume.Secret.SecretName != "smolvm-runtime-auth" {
		t.Errorf("the images are %s, and the token of the runtime is in %+v", images, volume)
	}
	l.Get(t, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "smolvms.vm.smolvm.dev"}})
}

// target runs a target of the Makefile with the kubeconfig and the tools of the lab.
func target(t *testing.T, l *lab.Lab, arguments ...string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "make", append([]string{"-C", root}, arguments...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.Kubeconfig(), "HOME="+t.TempDir(), "PATH="+filepath.Join(root, ".tools")+":"+os.Getenv("PATH"))
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("make %v: %s\n%s", arguments, err, output)
	}
}
