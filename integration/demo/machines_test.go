package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

func newMachinesDemo(s state) *machinesDemo {
	return &machinesDemo{demo: newDemo(s), seen: map[string]string{}, address: "127.0.0.1:20000"}
}

// machine returns one with a phase, and with a condition Ready that has a status, a reason and a message.
func machine(phase, status, reason, message string) v1alpha1.Machine {
	m := v1alpha1.Machine{Status: v1alpha1.MachineStatus{Phase: phase}}
	m.Generation = 2
	m.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionStatus(status), Reason: reason, Message: message, ObservedGeneration: 2,
	}}
	return m
}

func running(address string) v1alpha1.Machine {
	m := machine(v1alpha1.PhaseRunning, "True", "Running", "the guest runs")
	m.Status.NodeName, m.Status.IPAddresses = "node-1", []string{address}
	return m
}

// TestSamplesAreWhatTheDemoShows: the Machines of the tour and of the hints are in the manifests that it applies.
func TestSamplesAreWhatTheDemoShows(t *testing.T) {
	var names []string
	for _, sample := range appliedSamples {
		content, err := os.ReadFile(filepath.Join("..", "..", samples, sample))
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			var object metav1.PartialObjectMetadata
			if err := yaml.Unmarshal(document, &object); err != nil {
				t.Fatal(err)
			}
			if object.Namespace != "" {
				t.Errorf("%s names namespace %s, so it is not made in %s", sample, object.Namespace, team)
			}
			if object.Kind == "Machine" {
				names = append(names, object.Name)
			}
		}
	}
	for _, name := range []string{shown, kept} {
		if !slices.Contains(names, name) {
			t.Errorf("the demo talks about Machine %s, and the samples have %v", name, names)
		}
	}
}

// TestDebuggingIsThatOfThePage: what the demo runs is what docs/machines.md tells users to run.
func TestDebuggingIsThatOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/machines.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range debugging {
		command := strings.ReplaceAll(c.command, shown, "<name>")
		if !strings.Contains(string(page), "`"+command+"`") {
			t.Errorf("docs/machines.md does not have the command %s", command)
		}
	}
}

func TestHintsOfMachines(t *testing.T) {
	const golden = "testdata/machines-hints.txt"
	hints := newMachinesDemo(state{root: "/checkout", dir: "/checkout/.demo"}).hints()
	want, err := os.ReadFile(golden)
	if os.Getenv("UPDATE") != "" {
		want, err = []byte(hints), os.WriteFile(golden, []byte(hints), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), hints); diff != "" {
		t.Errorf("the hints (-want +got), UPDATE=1 rewrites them:\n%s", diff)
	}
}

func TestOperatorHasTheVariablesOfItsPod(t *testing.T) {
	container := corev1.Container{
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
		Env: []corev1.EnvVar{
			{Name: "TEXT", Value: "30s"},
			{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
			{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "key"}}},
		},
	}
	want := []string{"TEXT=30s", "NAMESPACE=here", "MEMORY=1073741824"}
	if diff := cmp.Diff(want, environment(container, "here")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDemoSaysWhatChangesOfMachines(t *testing.T) {
	d := newMachinesDemo(newState(t))
	for i, step := range []struct {
		all  machines
		want []string
	}{
		{machines{"b": {}, "a": {}}, []string{"a: new", "b: new"}},
		{machines{"b": {}, "a": {}}, nil},
		{machines{"b": {}, "a": machine("Creating", "False", "Creating", "the guest is being started")}, []string{"a: Creating: the guest is being started"}},
		{machines{"b": machine("Failed", "False", "InvalidSpec", "no size"), "a": running("10.0.0.1")}, []string{
			"a: Running on node-1, 10.0.0.1", "b: Failed, InvalidSpec: no size",
		}},
		{machines{"a": running("10.0.0.1")}, []string{"b: gone"}},
		{machines{"a": machine("Running", "True", "Running", "the guest runs; RestartRequired: a change")}, []string{"a: Running on , no address yet; RestartRequired: a change"}},
		{machines{}, []string{"a: gone"}},
	} {
		if diff := cmp.Diff(step.want, d.changes(step.all)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestDemoWaitsForMachines(t *testing.T) {
	outdated := running("10.0.0.1")
	outdated.Generation = 3
	for name, test := range map[string]struct {
		all   machines
		phase string
		want  string // part of what is waited for; empty: nothing
	}{
		"that do not exist":                  {machines{}, "Running", "there is no Machine small"},
		"that run and are not Ready":         {machines{shown: machine("Running", "False", "Creating", "not yet")}, "Running", "not yet"},
		"whose status is about another spec": {machines{shown: outdated}, "Running", "small is"},
		"but not for those that are Ready":   {machines{shown: running("10.0.0.1")}, "Running", ""},
		"that still run":                     {machines{shown: running("10.0.0.1")}, "Stopped", "small is Running"},
		"but not for those that are Stopped": {machines{shown: machine("Stopped", "False", "Stopped", "")}, "Stopped", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := inPhase(test.phase, shown)(test.all)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("it waits for %v, want %q", err, test.want)
			}
		})
	}
}

func TestMetricsOfInterest(t *testing.T) {
	const metrics = "# HELP kubevirt_operator_a about a\nkubevirt_operator_a{b=\"c\"} 3\nkubevirt_operator_b_bucket{le=\"1\"} 2\n" +
		"kubevirt_operator_c 0\ngo_threads 7\nkubevirt_operator_d 10\n"
	if diff := cmp.Diff("kubevirt_operator_a{b=\"c\"} 3\nkubevirt_operator_d 10\n", interesting(metrics)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLongStepIsSaidToBeInProgress(t *testing.T) {
	d := newMachinesDemo(newState(t))
	d.say("before")
	began := d.lastSpoken()
	err := d.patiently(t.Context(), step{"a long step", func(context.Context) error {
		stepBegan := d.lastSpoken()
		for d.lastSpoken().Equal(stepBegan) && time.Since(began) < time.Minute {
			time.Sleep(silence / 100)
		}
		return nil
	}})
	if spoken := d.lastSpoken().Sub(began); err != nil || spoken < silence {
		t.Errorf("after %s something was said, %v", spoken, err)
	}
}
