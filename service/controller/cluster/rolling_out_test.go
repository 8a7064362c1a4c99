package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/drain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/release"
)

// outline is what a reconcile does with nodes: Deployments applied and kept, and the outcome.
type outline struct{ Applied, Kept, Outcome string }

func planOf(t *testing.T, s *state.Cluster) outline {
	t.Helper()
	desired, err := build(t, s, "deployment")
	if err != nil {
		t.Fatal(err)
	}
	p := outline{Applied: strings.Join(names(desired.Objects), " "), Kept: strings.Join(names(desired.Keep), " "), Outcome: "Done"}
	if desired.Wait != nil {
		p.Outcome = desired.Wait.Reason + ": " + desired.Wait.Message
	}
	bootData, err := build(t, s, "configmap")
	if err != nil {
		t.Fatal(err)
	}
	if len(bootData.Objects) != 2*len(desired.Objects) || len(bootData.Keep) != 2*len(desired.Keep) {
		t.Errorf("boot data and machines do not go together: %v kept with %v", names(bootData.Keep), names(desired.Keep))
	}
	return p
}

// threeNodes has one master and two workers, enough to check the order.
func threeNodes() scenario {
	s := simple()
	s.config = fixture.MakeCluster("ab1cd").Workers(2).Obj()
	return s
}

// TestChangesRollThroughTheNodes: a change that affects a machine, such as a new SSH key, replaces nodes one at a time,
// masters first; boot data of a node that waits does not change, so that an accidental restart does not apply it.
func TestChangesRollThroughTheNodes(t *testing.T) {
	key := func(s *scenario) {
		s.config.Spec.Cluster.Kubernetes.SSH.UserList = []v1alpha1.SSHUser{{Name: "ada", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA ada"}}
	}
	all := "master-m0aaa worker-w0aaa worker-w1aaa"
	mastersFirst := outline{"master-m0aaa", "worker-w0aaa worker-w1aaa", "RollingOut: outdated nodes w0aaa, w1aaa wait until updated node m0aaa is Ready"}
	for name, test := range map[string]struct {
		change func(*scenario, *world)
		want   outline
	}{
		"nothing changed":     {func(*scenario, *world) {}, outline{all, "", "Done"}},
		"an SSH key is added": {func(s *scenario, _ *world) { key(s) }, mastersFirst},
		"another Kubernetes":  {func(s *scenario, _ *world) { s.config.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.35.5"} }, mastersFirst},
		"another version label": {func(s *scenario, _ *world) {
			s.config.Labels = map[string]string{"kvm-operator.giantswarm.io/version": "4.0.1"}
		}, mastersFirst},
		"another pod network, which must not meet what the one before left on the nodes": {func(s *scenario, _ *world) {
			s.config.Spec.AddOns = &v1alpha1.AddOns{CNI: v1alpha1.CNI{Type: v1alpha1.CNINone}}
		}, mastersFirst},
		"kube-proxy is disabled, whose rules stay in the kernel": {func(s *scenario, _ *world) {
			s.config.Spec.AddOns = &v1alpha1.AddOns{KubeProxy: v1alpha1.AddOn{Disabled: true}}
		}, mastersFirst},
		"add-ons that are named as they are": {func(s *scenario, _ *world) {
			s.config.Spec.AddOns = &v1alpha1.AddOns{CNI: v1alpha1.CNI{Type: v1alpha1.CNIFlannel}}
		}, outline{all, "", "Done"}},
		"another runner image": {func(s *scenario, _ *world) { s.settings.RunnerImage += "2" }, mastersFirst},
		"memory of one worker": {func(s *scenario, _ *world) { s.config.Spec.KVM.Workers[1].Memory = "8G" }, outline{all, "", "NodesNotReady: worker w1aaa: is being replaced"}},
		"memory of both workers": {
			func(s *scenario, _ *world) {
				s.config.Spec.KVM.Workers[0].Memory, s.config.Spec.KVM.Workers[1].Memory = "8G", "8G"
			},
			outline{"master-m0aaa worker-w0aaa", "worker-w1aaa", "RollingOut: outdated nodes w1aaa wait until updated node w0aaa is Ready"},
		},
		"paused by the user": {
			func(s *scenario, _ *world) { key(s); s.config.Spec.Rollout = &v1alpha1.Rollout{Paused: true} },
			outline{"", all, "RollingOut: outdated nodes m0aaa, w0aaa, w1aaa wait until spec.rollout.paused is unset"},
		},
		"nothing changed, a worker is away": {
			func(_ *scenario, w *world) { notReady(&w.Pods[2]) },
			outline{all, "", "NodesNotReady: worker w1aaa: node pod worker-w1aaa-574dd54b85-x2x2x is not Ready"},
		},
		"a worker was removed": {
			func(s *scenario, w *world) {
				s.config = fixture.MakeCluster("ab1cd").Workers(1).Obj()
				drains(&w.Pods[2])
			},
			outline{"master-m0aaa worker-w0aaa", "", "NodesLeaving: worker w1aaa: it was removed from the spec; " +
				"node pod worker-w1aaa-574dd54b85-x2x2x is being drained (Draining): waits for default/web"},
		},
		"a worker was removed, and another one is away": {
			func(s *scenario, w *world) {
				s.config = fixture.MakeCluster("ab1cd").Workers(1).Obj()
				drains(&w.Pods[2])
				notReady(&w.Pods[1])
			},
			outline{"master-m0aaa worker-w0aaa", "", "NodesNotReady: worker w0aaa: node pod worker-w0aaa-574dd54b85-x2x2x is not Ready; " +
				"worker w1aaa: it was removed from the spec; node pod worker-w1aaa-574dd54b85-x2x2x is being drained (Draining): waits for default/web"},
		},
		"memory of both workers, and the first one drains": {
			func(s *scenario, w *world) {
				s.config.Spec.KVM.Workers[0].Memory, s.config.Spec.KVM.Workers[1].Memory = "8G", "8G"
				drains(&w.Pods[1])
			},
			outline{"master-m0aaa worker-w0aaa", "worker-w1aaa", "RollingOut: outdated nodes w1aaa wait until updated node w0aaa is Ready; " +
				"node pod worker-w0aaa-574dd54b85-x2x2x is being drained (Draining): waits for default/web"},
		},
		"a port mapping is no reason to restart a machine": {
			func(s *scenario, _ *world) {
				s.config.Spec.KVM.PortMappings = []v1alpha1.PortMapping{{Name: "http", NodePort: 30100, TargetPort: 80}}
			},
			outline{all, "", "Done"},
		},
		"nor is a worker that is added": {
			func(s *scenario, _ *world) { s.config = fixture.MakeCluster("ab1cd").Workers(3).Obj() },
			outline{all + " worker-w2aaa", "", "NodesNotReady: worker w2aaa: no node pod yet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := threeNodes()
			w := s.running(t)
			test.change(&s, &w)
			if diff := cmp.Diff(test.want, planOf(t, s.snapshot(t, w))); diff != "" {
				t.Errorf("another plan (-want +got):\n%s", diff)
			}
		})
	}
}

func drains(pod *corev1.Pod) {
	terminating(pod)
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: key.ConditionDrained, Status: corev1.ConditionFalse, Reason: string(drain.Draining), Message: "waits for default/web",
	})
}

// TestRolloutStepByStep runs a rollout to its end: every step replaces what the last step made room for.
func TestRolloutStepByStep(t *testing.T) {
	s := simple()
	s.config = fixture.MakeCluster("ab1cd").Masters(3).Workers(1).Obj()
	w := s.running(t)
	s.config.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.35.5"}
	target := s.running(t)
	var order []string
	for range len(target.Pods) {
		now := s.snapshot(t, w)
		if got := len(now.Rollout.Replace); got != 1 {
			t.Fatalf("after %v there are %d nodes to replace: %+v", order, got, now.Rollout)
		}
		i := slices.IndexFunc(now.Nodes, func(n state.Node) bool { return now.Rollout.Replace[n.ID] })
		order = append(order, now.Nodes[i].ID)
		name := key.DeploymentName(now.Nodes[i].Role, now.Nodes[i].ID)
		w.Deployments[name] = target.Deployments[name]
		if during := s.snapshot(t, w); len(during.Rollout.Replace) > 0 {
			t.Errorf("while the pod of %s is the old one, %v goes", now.Nodes[i].ID, during.Rollout.Replace)
		}
		old := w.Pods[i]
		terminating(&old)
		w.Pods = append(w.Pods, old)
		w.Pods[i] = target.Pods[i]
		if during := s.snapshot(t, w); len(during.Rollout.Replace) > 0 {
			t.Errorf("while the old pod of %s still ends, %v goes", now.Nodes[i].ID, during.Rollout.Replace)
		}
		w.Pods = w.Pods[:len(w.Pods)-1]
	}
	if diff := cmp.Diff([]string{"m0aaa", "m1aaa", "m2aaa", "w0aaa"}, order); diff != "" {
		t.Errorf("another order (-want +got):\n%s", diff)
	}
	if end := planOf(t, s.snapshot(t, w)); end.Outcome != "Done" {
		t.Errorf("the end is not the end: %+v", end)
	}
}

// TestMiddleWorkerRemoved: only the Deployment of the removed worker goes; the objects of the others are identical to
// the byte.
func TestMiddleWorkerRemoved(t *testing.T) {
	whole, shrunk := simple(), simple()
	whole.config = fixture.MakeCluster("ab1cd").Workers(3).Obj()
	shrunk.config = whole.config.DeepCopy()
	shrunk.config.Spec.Cluster.Workers = slices.Delete(shrunk.config.Spec.Cluster.Workers, 1, 2)
	shrunk.config.Spec.KVM.Workers = slices.Delete(shrunk.config.Spec.KVM.Workers, 1, 2)
	shrunk.config.Status.KVM = &v1alpha1.LegacyKVMStatus{NodeIndexes: map[string]int32{"m0aaa": 1, "w0aaa": 2, "w1aaa": 3, "w2aaa": 4}}
	before, after := files(t, whole.render(t)), files(t, shrunk.render(t))
	var gone []string
	for path, text := range before {
		if now, ok := after[path]; !ok {
			gone = append(gone, path)
		} else if diff := cmp.Diff(text, now); diff != "" {
			t.Errorf("%s changed (-before +after):\n%s", path, diff)
		}
	}
	want := []string{
		"configmap/ConfigMap-worker-ab1cd-w1aaa.user_data.json", "configmap/ConfigMap-worker-ab1cd-w1aaa.yaml",
		"configmap/Secret-worker-ab1cd-w1aaa.user_data.json", "configmap/Secret-worker-ab1cd-w1aaa.yaml",
		"deployment/Deployment-worker-w1aaa.yaml",
	}
	slices.Sort(gone)
	if diff := cmp.Diff(want, gone); diff != "" || len(after) != len(before)-len(want) {
		t.Errorf("%d objects of %d are left, others are gone (-want +got):\n%s", len(after), len(before), diff)
	}
	s := shrunk.snapshot(t, whole.running(t))
	if diff := cmp.Diff(map[string]bool{}, s.Rollout.Replace, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("nodes that stay are replaced (+got):\n%s", diff)
	}
}

// TestOrderOfTheListDoesNotMatter: a reordered list changes no machine.
func TestOrderOfTheListDoesNotMatter(t *testing.T) {
	whole := full()
	turned := full()
	ids, machines := turned.config.Spec.Cluster.Workers, turned.config.Spec.KVM.Workers
	slices.Reverse(ids)
	slices.Reverse(machines)
	turned.config.Status.KVM = &v1alpha1.LegacyKVMStatus{NodeIndexes: whole.snapshot(t, world{}).Config.Status.KVM.NodeIndexes}
	if diff := cmp.Diff(files(t, must(t, renderedFull)), files(t, turned.render(t))); diff != "" {
		t.Errorf("objects changed (-before +after):\n%s", diff)
	}
}

// TestRenderingTwiceIsByteIdentical renders everything whose order could depend on Go's maps.
func TestRenderingTwiceIsByteIdentical(t *testing.T) {
	first := files(t, must(t, renderedFull))
	for range 3 {
		if diff := cmp.Diff(first, files(t, full().render(t))); diff != "" {
			t.Fatalf("another rendering (-first +later):\n%s", diff)
		}
	}
}

// TestWithoutReleaseNothingIsReplaced: nodes do not change while the requested versions are not known, and can be
// created with the versions in use as long as those are known.
func TestWithoutReleaseNothingIsReplaced(t *testing.T) {
	message := "Release v20.0.0 does not exist; create it, or remove the label release.giantswarm.io/version and set spec.versions"
	all := "master-m0aaa master-m1aaa master-m2aaa worker-w0aaa worker-w1aaa worker-w2aaa worker-w3aaa worker-w4aaa"
	for name, test := range map[string]struct {
		forget  bool
		applied string
	}{
		"masters say what they run":  {false, all},
		"nothing says what they run": {true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := full()
			w := s.running(t)
			hashes := map[string]string{}
			for n, d := range w.Deployments {
				hashes[n] = d.Spec.Template.Annotations[key.AnnotationNodeHash]
			}
			s.inputs.Release = nil
			if test.forget {
				forgetVersions(w)
			}
			now := s.snapshot(t, w)
			desired, err := build(t, now, "deployment")
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range desired.Objects {
				if got := object.(*appsv1.Deployment).Spec.Template.Annotations[key.AnnotationNodeHash]; got != hashes[object.GetName()] {
					t.Errorf("%s is replaced", object.GetName())
				}
			}
			result := chain.Result{Handler: "release", Err: errors.Join(now.VersionsErr, now.VersionsRefused)}
			want := []string{test.applied, message}
			if diff := cmp.Diff(want, []string{strings.Join(names(desired.Objects), " "), result.Condition("x").Message}); diff != "" {
				t.Errorf("other Deployments or another message (-want +got):\n%s", diff)
			}
		})
	}
}

// forgetVersions removes from machines the annotations with the versions that they run.
func forgetVersions(w world) {
	for _, d := range w.Deployments {
		delete(d.Spec.Template.Annotations, "kvm-operator.giantswarm.io/component-version-kubernetes")
		delete(d.Spec.Template.Annotations, "kvm-operator.giantswarm.io/component-version-etcd")
	}
}

// TestRefusedVersionsTouchNoMachine: versions that are rejected, or wait, change no Deployment, no matter whether the
// spec requests them or a Release that also names another calico; and the status keeps the versions in use.
func TestRefusedVersionsTouchNoMachine(t *testing.T) {
	older := fixture.MakeRelease("20.0.0", "1.34.2")
	newer := fixture.MakeRelease("20.0.0", "1.36.0")
	for _, r := range []*releasev1alpha1.Release{older, newer} {
		for i := range r.Spec.Components {
			if r.Spec.Components[i].Name == "calico" {
				r.Spec.Components[i].Version = "9.9.9"
			}
		}
	}
	for name, test := range map[string]struct {
		from   scenario
		change func(*scenario, *world)
		want   string
	}{
		"a downgrade by the spec": {
			simple(), func(s *scenario, _ *world) { s.config.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.34.2"} },
			"False VersionChangeRefused",
		},
		"a downgrade by a Release": {full(), func(s *scenario, _ *world) { s.inputs.Release = older }, "False VersionChangeRefused"},
		"an upgrade by a Release while a master is not Ready": {
			full(), func(s *scenario, w *world) { s.inputs.Release = newer; notReady(&w.Pods[1]) }, "False MastersNotReady",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.from
			w := s.running(t)
			before := s.snapshot(t, w)
			s.config.Status.Versions = &before.Versions
			test.change(&s, &w)
			after := s.snapshot(t, w)
			for i, n := range after.Nodes {
				if n.Outdated() || n.Hash != before.Nodes[i].Hash {
					t.Errorf("%s is outdated", n.ID)
				}
			}
			outcome, err := release.Handler{}.EnsureCreated(t.Context(), after)
			c := chain.Result{Handler: "release", Outcome: outcome, Err: err}.Condition("VersionsResolved")
			if diff := cmp.Diff([]string{test.want, before.Versions.Kubernetes}, []string{string(c.Status) + " " + c.Reason, after.Config.Status.Versions.Kubernetes}); diff != "" {
				t.Errorf("another condition or version in the status (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVersionsAreStoredBeforeMachinesAreMade: an operator that ends right after it created a master with another
// version finds that version in the status after its restart.
func TestVersionsAreStoredBeforeMachinesAreMade(t *testing.T) {
	s := simple()
	w := s.running(t)
	made := s.snapshot(t, w)
	fresh, err1 := release.Handler{}.EnsureCreated(t.Context(), made)
	s.config.Status.Versions = status(made, nil, now).Versions
	same, err2 := release.Handler{}.EnsureCreated(t.Context(), s.snapshot(t, w))
	s.config.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.36.0"}
	changing := s.snapshot(t, w)
	changed, err3 := release.Handler{}.EnsureCreated(t.Context(), changing)
	want := []chain.Outcome{chain.Done(), chain.Done(), chain.Store("the versions of the cluster change")}
	if diff := cmp.Diff(want, []chain.Outcome{fresh, same, changed}); diff != "" || errors.Join(err1, err2, err3) != nil {
		t.Errorf("errors %v, other outcomes (-want +got):\n%s", errors.Join(err1, err2, err3), diff)
	}
	if got := status(changing, nil, now).Versions.Kubernetes; got != "1.36.0" {
		t.Errorf("%s is stored", got)
	}
}

// TestMachinesOfTheOriginalRollToo: the original's Deployments have neither owner nor hash; adopting them all at once
// would stop the whole cluster.
func TestMachinesOfTheOriginalRollToo(t *testing.T) {
	s := threeNodes()
	w := s.running(t)
	for _, d := range w.Deployments {
		delete(d.Annotations, ownership.Annotation)
		delete(d.Spec.Template.Annotations, key.AnnotationNodeHash)
	}
	for i := range w.Pods {
		delete(w.Pods[i].Annotations, key.AnnotationNodeHash)
	}
	want := outline{"master-m0aaa", "worker-w0aaa worker-w1aaa", "RollingOut: outdated nodes w0aaa, w1aaa wait until updated node m0aaa is Ready"}
	if diff := cmp.Diff(want, planOf(t, s.snapshot(t, w))); diff != "" {
		t.Errorf("another plan (-want +got):\n%s", diff)
	}
}

// TestForeignDeploymentsAreNoNodes: attach takes Deployments with this cluster's owner, and pods by role and node
// ID.
func TestForeignDeploymentsAreNoNodes(t *testing.T) {
	s := simple()
	w := s.running(t)
	w.Deployments["worker-w0aaa"].Annotations[ownership.Annotation] = "default/other/deployment"
	stranger := w.Pods[0]
	stranger.Name, stranger.Labels = "stranger", map[string]string{key.LabelApp: key.RoleWorker, key.LabelNode: "m0aaa"}
	w.Pods = append([]corev1.Pod{stranger}, w.Pods...)
	got := s.snapshot(t, w)
	has := map[string][]string{}
	for _, n := range got.Nodes {
		has[n.ID] = []string{}
		if n.Deployment != nil {
			has[n.ID] = append(has[n.ID], n.Deployment.Name)
		}
		for _, pod := range n.Pods {
			has[n.ID] = append(has[n.ID], pod.Name)
		}
	}
	want := map[string][]string{"m0aaa": {"master-m0aaa", "master-m0aaa-574dd54b85-x2x2x"}, "w0aaa": {"worker-w0aaa-574dd54b85-x2x2x"}}
	if diff := cmp.Diff(want, has); diff != "" {
		t.Errorf("nodes have other objects (-want +got):\n%s", diff)
	}
}
