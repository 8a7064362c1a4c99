package cmd_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/yaml"
)

const manifests = "../pkg/apis/provider/v1alpha1/testdata/"

// TestWhatTheAPIServerAcceptsRenders: every value that the original operator allowed and its users wrote is accepted
// and can be rendered. A value that only the boot data rejects would block a cluster after the API server has accepted
// it.
func TestWhatTheAPIServerAcceptsRenders(t *testing.T) {
	var changes map[string]string
	if err := yaml.UnmarshalStrict([]byte(file(t, manifests+"accepted.yaml")), &changes); err != nil {
		t.Fatal(err)
	}
	if len(changes) < 40 {
		t.Fatalf("only %d changes", len(changes))
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			var object, changed map[string]any
			for text, into := range map[string]*map[string]any{file(t, manifests+"minimal.yaml"): &object, change: &changed} {
				if err := yaml.Unmarshal([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			mergeInto(object, changed)
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			if _, failure := run(t, string(text)+volumesOf(object), "render", "-f", "-"); failure != "" {
				t.Error(failure)
			}
		})
	}
}

// mergeInto merges maps key by key. A list replaces a list, and a null is kept.
func mergeInto(into, from map[string]any) {
	for key, value := range from {
		target, isMap := into[key].(map[string]any)
		source, alsoMap := value.(map[string]any)
		if isMap && alsoMap {
			mergeInto(target, source)
			continue
		}
		into[key] = value
	}
}

// volumesOf returns the PersistentVolumes that the host volumes of workers refer to.
func volumesOf(object map[string]any) string {
	text := ""
	machines, _ := object["spec"].(map[string]any)["kvm"].(map[string]any)["workers"].([]any)
	for _, machine := range machines {
		list, _ := machine.(map[string]any)["hostVolumes"].([]any)
		for _, volume := range list {
			text += fmt.Sprintf("\n---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %[1]s, labels: {mount-tag: %[1]s}}\n", volume.(map[string]any)["mountTag"])
		}
	}
	return text
}
