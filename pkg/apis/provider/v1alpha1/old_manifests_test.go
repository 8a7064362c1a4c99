package v1alpha1_test

import (
	"context"
	"os"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

func TestOldManifestsAreAcceptedUnchanged(t *testing.T) {
	for _, name := range []string{"old-minimal", "old-full"} {
		t.Run(name, func(t *testing.T) {
			manifest := crd.Load(t, name)
			created := server.Store(t, manifest)
			for _, loss := range crd.Lost("", manifest.Object, created.Object) {
				t.Errorf("not what the manifest says: %s", loss)
			}
		})
	}
}

// accepted is the table of testdata/accepted.yaml: changes to testdata/minimal.yaml, by sentence.
func accepted(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("testdata/accepted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table map[string]string
	if err := yaml.UnmarshalStrict(content, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestWhatTheOriginalAllowedIsAccepted(t *testing.T) {
	for name, change := range accepted(t) {
		t.Run(name, func(t *testing.T) {
			if err := server.Create(context.Background(), crd.Load(t, "minimal", change), client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoClientsMayWriteBackWhatTheyRead guards against rules that a zero value, which Go cannot leave out, would break.
func TestGoClientsMayWriteBackWhatTheyRead(t *testing.T) {
	for _, name := range []string{"old-minimal", "old-full", "minimal"} {
		t.Run(name, func(t *testing.T) {
			created := server.Store(t, crd.Load(t, name))
			var object v1alpha1.KVMConfig
			if err := server.Get(context.Background(), client.ObjectKeyFromObject(created), &object); err != nil {
				t.Fatal(err)
			}
			if err := server.Update(context.Background(), &object); err != nil {
				t.Error(err)
			}
		})
	}
}
