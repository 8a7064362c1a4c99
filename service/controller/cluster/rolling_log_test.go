package cluster

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/deployment"
)

// revision matches the hash of a node.
var revision = regexp.MustCompile(`[0-9a-f]{24}`)

// rolled returns a logger that records the nodes that are said to roll, and why.
func rolled(t *testing.T, lines *[]string) logr.Logger {
	return funcr.NewJSON(func(text string) {
		line := map[string]any{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("line %s: %v", text, err)
		}
		if line["msg"] == "rolling node" {
			*lines = append(*lines, fmt.Sprintf("%v %v: %s", line["role"], line["node"], revision.ReplaceAllString(fmt.Sprint(line["reason"]), "…")))
		}
	}, funcr.Options{})
}

// TestANodeThatRollsIsInTheLog: one line says which node is replaced and why, once it is, and none about nodes that wait,
// that are new, or whose replacement was rejected.
func TestANodeThatRollsIsInTheLog(t *testing.T) {
	newKey := func(s *scenario) {
		s.config.Spec.Cluster.Kubernetes.SSH.UserList = []v1alpha1.SSHUser{{Name: "ada", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA ada"}}
	}
	for name, test := range map[string]struct {
		change func(*scenario, *world)
		want   []string
	}{
		"nothing changed":     {func(*scenario, *world) {}, nil},
		"an SSH key is added": {func(s *scenario, _ *world) { newKey(s) }, []string{"master m0aaa: revision … becomes …"}},
		"another Kubernetes": {
			func(s *scenario, _ *world) { s.config.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.35.5"} },
			[]string{"master m0aaa: kubernetes 1.35.4 becomes 1.35.5; revision … becomes …"},
		},
		"the rollout is paused": {func(s *scenario, _ *world) {
			newKey(s)
			s.config.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
		}, nil},
		"a node that is new": {func(_ *scenario, w *world) { delete(w.Deployments, "worker-w1aaa") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := threeNodes()
			w := s.running(t)
			test.change(&s, &w)
			c := writable(w)
			var got []string
			ctx := log.IntoContext(t.Context(), rolled(t, &got))
			handler := deployment.New().Handle(apply.New(c, c, clock.RealClock{}))
			for range 2 { // the second pass sees what the first has written
				if _, err := handler.EnsureCreated(ctx, s.snapshot(t, w)); err != nil {
					t.Fatal(err)
				}
				for name, d := range w.Deployments {
					read := &appsv1.Deployment{}
					if err := c.Get(ctx, client.ObjectKeyFromObject(d), read); err != nil {
						t.Fatal(err)
					}
					w.Deployments[name] = read
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("other nodes are said to roll (-want +got):\n%s", diff)
			}
		})
	}
}

// writable returns a management cluster with the Deployments of a world.
func writable(w world) client.Client {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	b, namespace := fake.NewClientBuilder().WithRESTMapper(mapper).WithIndex(&appsv1.Deployment{}, apply.IndexOwner, apply.OwnerOf), ""
	for _, d := range w.Deployments {
		namespace = d.Namespace
		b.WithObjects(d)
	}
	return b.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}).Build()
}
