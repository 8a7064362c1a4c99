package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kvm-operator/kvm-operator/pkg/project"
)

func TestLinterHasNothingToSay(t *testing.T) {
	for name, values := range map[string][]string{
		"with no value set":     nil,
		"with every value set":  {"--values=" + full},
		"as part of a release":  {"--set=project.branch=release-v4.0.x,project.commit=3ab384f"},
		"with no operator left": {"--set=replicas=0"},
		"with SmolVMs alone":    {"--set-json=controllers=[]", "--set=smolvm.enabled=true"},
	} {
		t.Run(name, func(t *testing.T) {
			helm(t, append([]string{"lint", "--strict", "--quiet", "--kube-version=" + kubernetes, chart}, values...)...)
		})
	}
}

// TestEveryObjectIsAsRecorded compares the rendered objects with the golden files in testdata. UPDATE=1 rewrites them.
func TestEveryObjectIsAsRecorded(t *testing.T) {
	records := map[string][]string{
		"testdata/default.golden": nil,
		"testdata/full.golden":    {"--values=" + full},
		// A token that the chart makes is another one each time.
		"testdata/smolvm.golden": {"--set-json=controllers=[]", "--set=smolvm.enabled=true,smolvm.auth.secret=token"},
	}
	for path, values := range records {
		t.Run(path, func(t *testing.T) {
			got := withoutDefinitions(render(t, values...))
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%s (UPDATE=1 writes it)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("objects (UPDATE=1 records them) (-recorded +rendered):\n%s", diff)
			}
		})
	}
	found, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if _, ok := records[path]; !ok {
			t.Errorf("%s is the record of nothing", path)
		}
	}
}

// withoutDefinitions leaves CustomResourceDefinitions out, which are generated and recorded as files of the chart.
func withoutDefinitions(text string) string {
	documents := strings.Split(text, "\n---\n")
	return strings.Join(slices.DeleteFunc(documents, func(d string) bool { return strings.Contains(d, "\nkind: CustomResourceDefinition\n") }), "\n---\n")
}

func TestVersionIsTheOperators(t *testing.T) {
	r := parse(t, render(t))
	if want := "docker.io/kvm-operator/kvm-operator:" + project.Version(); r.container().Image != want {
		t.Errorf("the image is %s, want %s", r.container().Image, want)
	}
}

// TestOktetoFindsTheOperator: okteto.yml names the container that `make okteto-up` replaces with one for development.
func TestOktetoFindsTheOperator(t *testing.T) {
	text, err := os.ReadFile("../../../okteto.yml")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Dev map[string]struct{ Selector map[string]string }
	}
	decode(t, []byte(strings.ReplaceAll(string(text), "$VERSION", project.Version())), &manifest)
	selector := labels.SelectorFromSet(manifest.Dev[release].Selector)
	if r := parse(t, render(t)); selector.Empty() || !selector.Matches(labels.Set(r.deployment.Labels)) {
		t.Errorf("okteto.yml looks for %s, the Deployment has the labels %v", selector, r.deployment.Labels)
	}
}

func TestReleasesLiveSideBySide(t *testing.T) {
	for name, want := range map[string]string{
		"kvm-operator":        "kvm-operator",
		"kvm-operator-3.18.6": "kvm-operator-3-18-6",
		"a-name-that-is-as-long-as-helm-allows-it-to-be-4.0.0": "a-name-that-is-as-long-as-helm-allows-it-to-be",
	} {
		t.Run(name, func(t *testing.T) {
			r := parse(t, helm(t, "template", name, chart, "--namespace=elsewhere", "--kube-version="+kubernetes, "--values="+full, "--set=rbac.clusterRole.general="))
			for _, object := range r.all {
				if forSmolVMs(&object) {
					continue // what runs SmolVMs is there once, and its names are those of smolvm-operator
				}
				suffix, ok := strings.CutPrefix(object.Name, want)
				if !ok || !slices.Contains([]string{"", "-node", "-leader-election", "-pull-secret", "-limits"}, suffix) {
					t.Errorf("%s is called %s, want it to begin with %s", object.Kind, object.Name, want)
				}
				if inCluster := strings.HasPrefix(object.Kind, "Cluster") || strings.HasPrefix(object.Kind, "ValidatingAdmissionPolicy"); !inCluster && object.Namespace != "elsewhere" {
					t.Errorf("%s %s is in namespace %q, want that of the release", object.Kind, object.Name, object.Namespace)
				}
				if object.Labels["app.kubernetes.io/instance"] != name || object.Labels["app.kubernetes.io/name"] != "kvm-operator" {
					t.Errorf("%s %s has the labels %v", object.Kind, object.Name, object.Labels)
				}
			}
		})
	}
}

// TestEachReleaseHasALeaseOfItsOwn: a release may only renew its own Lease.
func TestEachReleaseHasALeaseOfItsOwn(t *testing.T) {
	for name, want := range map[string]string{"kvm-operator": "kvm-operator", "kvm-operator-3.18.6": "kvm-operator-3-18-6"} {
		text := helm(t, "template", name, chart, "--namespace=elsewhere", "--kube-version="+kubernetes)
		for _, part := range []string{
			"leaderElection:\n        leaseDuration: \"15s\"\n        name: \"" + want + "\"\n        namespace: \"elsewhere\"\n",
			"resources: [leases]\n    resourceNames: [" + want + "]\n    verbs: [get, update]\n",
		} {
			if !strings.Contains(text, part) {
				t.Errorf("what is rendered for the release %s does not have\n%s", name, part)
			}
		}
	}
}

// TestAnUpgradeLeavesAnOperatorAtWork: an upgrade keeps an operator running if there are several replicas, and never
// starts a second one beside one without leader election.
func TestAnUpgradeLeavesAnOperatorAtWork(t *testing.T) {
	single := parse(t, render(t)).deployment.Spec.Strategy
	if single.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("a single operator is replaced by %+v", single)
	}
	several := parse(t, render(t, "--set=replicas=2")).deployment.Spec.Strategy
	if several.Type != appsv1.RollingUpdateDeploymentStrategyType || several.RollingUpdate.MaxSurge.IntValue() != 0 || several.RollingUpdate.MaxUnavailable.IntValue() != 1 {
		t.Errorf("two operators are replaced by %+v", several)
	}
}

func TestOperatorIsRestartedWhenItsFilesChangeAndOnlyThen(t *testing.T) {
	checksum := func(set string) string {
		return parse(t, render(t, "--set="+set)).deployment.Spec.Template.Annotations["checksum/config"]
	}
	before := checksum("sharedHosts=false")
	for set, changes := range map[string]bool{
		"sharedHosts=true":                    true,
		"proxy.http=http://proxy.example.org": true,
		"leaderElection.leaseDuration=30s":    true,
		"replicas=2":                          false,
		"replicas=0":                          false,
		"networkPolicy.enabled=false":         false,
	} {
		if changed := checksum(set) != before; changed != changes {
			t.Errorf("with %s the checksum changes: %t, want %t", set, changed, changes)
		}
	}
}

// TestNoRuleIsAWildcard: the rules list everything that the operator may do.
func TestNoRuleIsAWildcard(t *testing.T) {
	text := render(t, "--values="+full)
	if strings.Contains(text, `"*"`) || strings.Contains(text, "'*'") {
		t.Error("there is a wildcard")
	}
}
