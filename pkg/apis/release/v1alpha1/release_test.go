package v1alpha1_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
)

const root = "../../../.."

// The API server under test, with the CRD of the chart.
var server crd.Server

func TestMain(m *testing.M) {
	releases := root + "/helm/kvm-operator/crds/release.giantswarm.io_releases.yaml"
	os.Exit(crd.Run(m, []string{releases}, func(config *rest.Config) (err error) {
		server, err = crd.Connect(config, v1alpha1.AddToScheme)
		return err
	}))
}

// load reads the last Release of the original line.
func load(t *testing.T) *v1alpha1.Release {
	t.Helper()
	content, err := os.ReadFile("testdata/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	release := &v1alpha1.Release{}
	if err := yaml.UnmarshalStrict(content, release); err != nil {
		t.Fatal(err)
	}
	return release
}

func TestAReleaseOfTheOriginalIsAccepted(t *testing.T) {
	release := load(t)
	release.Annotations = map[string]string{"giantswarm.io/release-notes": "https://example.org/notes"}
	want := release.DeepCopy()
	for i := range want.Spec.Apps {
		want.Spec.Apps[i].Catalog = "default"
	}
	for i := range want.Spec.Components {
		want.Spec.Components[i].Catalog = "control-plane-catalog"
	}
	if err := server.Create(context.Background(), release); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Delete(context.Background(), release) })
	if diff := cmp.Diff(want.Spec, release.Spec); diff != "" {
		t.Errorf("not what the manifest says (-want +got):\n%s", diff)
	}

	release.Status = v1alpha1.ReleaseStatus{Ready: true}
	if err := server.Status().Update(context.Background(), release); err != nil {
		t.Fatal(err)
	}
	got := server.AllColumns(t, "/apis/release.giantswarm.io/v1alpha1/releases/v16.2.1")
	age, _ := got["Age"].(string)
	if !strings.HasSuffix(age, "y") && !strings.HasSuffix(age, "d") {
		t.Errorf("Age is %q, not the time since spec.date", age)
	}
	delete(got, "Age")
	columns := map[string]any{
		"Name": "v16.2.1", "Kubernetes version": "1.21.5", "State": "active", "Ready": true, "InUse": nil, "Release notes": "https://example.org/notes",
	}
	if diff := cmp.Diff(columns, got); diff != "" {
		t.Errorf("other columns (-want +got):\n%s", diff)
	}
}

func TestBadReleasesAreRefusedWithOneSentence(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.ReleaseSpec)
		want   string
	}{
		"no component": {
			change: func(s *v1alpha1.ReleaseSpec) { s.Components = []v1alpha1.Component{} },
			want:   "spec.components: Invalid value: 0: spec.components in body should have at least 1 items",
		},
		"a component twice": {
			change: func(s *v1alpha1.ReleaseSpec) { s.Components[1].Name = "kubernetes" },
			want:   `spec.components[1]: Duplicate value: {"name":"kubernetes"}`,
		},
		"a component without a name": {
			change: func(s *v1alpha1.ReleaseSpec) { s.Components[1].Name = "" },
			want:   `spec.components[1].name: Invalid value: "": spec.components[1].name in body should be at least 1 chars long`,
		},
		"a component with a leading v": {
			change: func(s *v1alpha1.ReleaseSpec) { s.Components[0].Version = "v1.21.5" },
			want:   `spec.components[0].version: Invalid value: "v1.21.5": must be a semantic version of three numbers without a leading "v", for example 1.21.5`,
		},
		"an app with a version of two numbers": {
			change: func(s *v1alpha1.ReleaseSpec) { s.Apps[0].Version = "1.6" },
			want:   `spec.apps[0].version: Invalid value: "1.6": must be a semantic version of three numbers without a leading "v", for example 1.21.5`,
		},
		"an app with a leading zero": {
			change: func(s *v1alpha1.ReleaseSpec) { s.Apps[0].Version = "1.06.0" },
			want:   `spec.apps[0].version: Invalid value: "1.06.0": must be a semantic version of three numbers without a leading "v", for example 1.21.5`,
		},
		"an unknown state": {
			change: func(s *v1alpha1.ReleaseSpec) { s.State = "done" },
			want:   `spec.state: Unsupported value: "done": supported values: "active", "deprecated", "wip"`,
		},
		"no date": {
			change: func(s *v1alpha1.ReleaseSpec) { s.Date = nil },
			want:   "spec.date: Required value",
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := load(t)
			test.change(&release.Spec)
			err := server.Create(context.Background(), release, client.DryRunAll)
			crd.Refused(t, err, test.want)
		})
	}
}

func TestWhatTheOriginalAllowedIsAccepted(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ReleaseSpec){
		"no apps":          func(s *v1alpha1.ReleaseSpec) { s.Apps = []v1alpha1.App{} },
		"a pre-release":    func(s *v1alpha1.ReleaseSpec) { s.Components[0].Version = "1.22.0-rc.1+build.5" },
		"an end of life":   func(s *v1alpha1.ReleaseSpec) { s.EndOfLifeDate = &metav1.Time{Time: time.Unix(1700000000, 0)} },
		"work in progress": func(s *v1alpha1.ReleaseSpec) { s.State = "wip" },
		"an unknown component": func(s *v1alpha1.ReleaseSpec) {
			s.Components = append(s.Components, v1alpha1.Component{Name: "kvm-operator", Version: "3.18.6", Reference: "3.18.6-x", ReleaseOperatorDeploy: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			release := load(t)
			change(&release.Spec)
			if err := server.Create(context.Background(), release, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}
