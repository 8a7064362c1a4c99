package addon_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/addon"
)

// TestKubeProxyWithoutAVersionStaysAsItIs covers a cluster whose Release has been deleted.
func TestKubeProxyWithoutAVersionStaysAsItIs(t *testing.T) {
	gone := errors.New("Release v20.0.0 does not exist")
	for name, test := range map[string]struct {
		addon v1alpha1.AddOn
		err   error
		want  string
	}{
		"its version is known":   {want: "image: registry.k8s.io/kube-proxy:v1.35.4"},
		"its version is unknown": {err: gone},
		"it has an image":        {addon: v1alpha1.AddOn{Image: "example.com/proxy:1"}, err: gone, want: "image: example.com/proxy:1"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &v1alpha1.KVMConfig{}
			config.Spec.AddOns = &v1alpha1.AddOns{KubeProxy: test.addon}
			config.Spec.Cluster.ID, config.Spec.Cluster.Calico.Subnet, config.Spec.Cluster.Calico.CIDR = "abc12", "10.1.0.0", 16
			config = state.WithDefaults(config)
			s := &state.Cluster{Config: config, VersionsErr: test.err}
			if test.err == nil {
				s.Versions.Kubernetes = "1.35.4"
			}
			desired, err := addon.KubeProxy().Build(s)
			text, _ := yaml.Marshal(desired.Objects)
			if test.want == "" {
				if !errors.Is(err, gone) || len(desired.Objects) > 0 {
					t.Errorf("err = %v, and these are wanted:\n%s", err, text)
				}
				return
			}
			if err != nil || !strings.Contains(string(text), test.want) {
				t.Errorf("err = %v, want %s in\n%s", err, test.want, text)
			}
		})
	}
}

// TestTokensThatHaveExpiredThereAreNotMade covers a workload cluster whose clock is ahead. It removes tokens that have
// expired by its clock.
func TestTokensThatHaveExpiredThereAreNotMade(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		ahead  time.Duration
		tokens int
		reason string
	}{
		"on time":              {0, 2, ""},
		"ahead by half a day":  {13 * time.Hour, 2, ""},
		"ahead by a day":       {25 * time.Hour, 1, ""},
		"ahead by two days":    {48 * time.Hour, 0, "ClockAhead"},
		"a day behind":         {-24 * time.Hour, 2, ""},
		"its clock is unknown": {0, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{Config: state.WithDefaults(&v1alpha1.KVMConfig{}), Tokens: joining.TokensAt("seed", now), Now: now}
			made := metav1.NewTime(now.Add(-joining.Period))
			s.Nodes = []state.Node{{ID: "w0aaa", Role: "worker", Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "pod", CreationTimestamp: made}}}}}
			if name != "its clock is unknown" {
				s.Workload.Now = now.Add(test.ahead)
			}
			desired, err := addon.Bootstrap().Build(s)
			tokens, reason := 0, ""
			for _, o := range desired.Objects {
				if _, ok := o.(*corev1.Secret); ok {
					tokens++
				}
			}
			if desired.Wait != nil {
				reason = desired.Wait.Reason
			}
			if err != nil || tokens != test.tokens || reason != test.reason {
				t.Errorf("err = %v, there are %d tokens because of %q, want %d, %q", err, tokens, reason, test.tokens, test.reason)
			}
		})
	}
}

// TestTokensGoOnceNodesHaveJoined: the workload cluster only has the tokens of nodes whose current pod has not been
// Ready there.
func TestTokensGoOnceNodesHaveJoined(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pod := func(name string, deleted bool) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now)}}
		if deleted {
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}
		return p
	}
	joined := pod("joined", false)
	joined.Annotations = map[string]string{key.AnnotationJoining: joining.Record{At: now, Joined: true}.Text(&joined)}
	for name, test := range map[string]struct {
		pods []corev1.Pod
		want int
	}{
		"no pod": {nil, 0}, "a pod that has no Node": {[]corev1.Pod{pod("new", false)}, 1}, "a pod that is deleted": {[]corev1.Pod{pod("new", true)}, 0},
		"a pod whose Node is Ready": {[]corev1.Pod{pod("ready", false)}, 0}, "a pod whose Node is not Ready": {[]corev1.Pod{pod("unready", false)}, 1},
		"a pod whose Node was Ready": {[]corev1.Pod{joined}, 0}, "a pod that replaces it": {[]corev1.Pod{pod("new", false), joined}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{
				Config: state.WithDefaults(&v1alpha1.KVMConfig{}), Tokens: joining.TokensAt("seed", now), Now: now,
				Nodes: []state.Node{{ID: "w0aaa", Role: "worker", Pods: test.pods}},
			}
			s.Workload.Now = now
			s.Workload.Nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "ready"}}, {ObjectMeta: metav1.ObjectMeta{Name: "unready"}}}
			s.Workload.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			desired, err := addon.Bootstrap().Build(s)
			tokens := 0
			for _, o := range desired.Objects {
				if _, ok := o.(*corev1.Secret); ok {
					tokens++
				}
			}
			if err != nil || tokens != test.want {
				t.Errorf("err = %v, there are %d tokens, want %d", err, tokens, test.want)
			}
		})
	}
}
