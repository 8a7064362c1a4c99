package living_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coreos/ignition/v2/config/v3_3/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// TestWhoKeepsBootDataCanJoin: the rollout is paused for longer than a token is valid. The boot data of an outdated
// node stays unchanged except for the token, because its pod may have to be created again.
func TestWhoKeepsBootDataCanJoin(t *testing.T) {
	t.Parallel()
	theLab.Run(t, ofShard("shard=kept"))
	l := create(t, crowd, "kept", fixture.MakeCluster("kept").Workers(1))
	l.await(t, wanted{kind: "NodesReady", status: metav1.ConditionFalse, without: []string{"configmap: "}})
	lab.Eventually(t, patience, func() error {
		return theLab.Client.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace(l.id), Name: key.DeploymentName(key.RoleWorker, "w0aaa")}, &appsv1.Deployment{})
	})
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
		c.Spec.Cluster.Kubernetes.SSH.UserList = append(c.Spec.Cluster.Kubernetes.SSH.UserList, v1alpha1.SSHUser{
			Name: "alice", PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl alice",
		})
	})
	l.await(t, wanted{kind: "NodesReady", status: metav1.ConditionFalse, reason: "RollingOut"})
	name := client.ObjectKey{Namespace: key.Namespace(l.id), Name: key.BootDataName(key.RoleWorker, l.id, "w0aaa")}
	var public corev1.ConfigMap
	var private corev1.Secret
	must(t, theLab.Client.Get(t.Context(), name, &public))
	must(t, theLab.Client.Get(t.Context(), name, &private))
	now, want := l.bootToken(t, key.RoleWorker, "w0aaa"), private.Data[nodepod.UserData]
	// The token looks two days old.
	long := joining.TokensAt("another seed", time.Now()).Current(joining.Node{Role: key.RoleWorker, ID: "w0aaa"}).String()
	private.Data[nodepod.UserData] = encoded(t, strings.Replace(decoded(t, want), now, long, 1))
	private.Annotations[key.AnnotationBootstrapToken] = tokenID(long)
	must(t, theLab.Client.Update(t.Context(), &private))
	l.touch(t)
	lab.Eventually(t, patience, func() error {
		if got := l.bootToken(t, key.RoleWorker, "w0aaa"); got != now {
			return fmt.Errorf("the boot data has token %s, want %s", tokenID(got), tokenID(now))
		}
		return nil
	})
	var renewed corev1.Secret
	var same corev1.ConfigMap
	must(t, theLab.Client.Get(t.Context(), name, &renewed))
	must(t, theLab.Client.Get(t.Context(), name, &same))
	if decoded(t, renewed.Data[nodepod.UserData]) != decoded(t, want) || !equality.Semantic.DeepEqual(same.Data, public.Data) {
		t.Errorf("more than the token has changed")
	}
}

func decoded(t *testing.T, half []byte) string {
	t.Helper()
	raw, err := bootdata.Decode(string(half))
	must(t, err)
	return string(raw)
}

func encoded(t *testing.T, raw string) []byte {
	t.Helper()
	var config types.Config
	must(t, json.Unmarshal([]byte(raw), &config))
	text, err := cloudconfig.Encode(config)
	must(t, err)
	return []byte(text)
}
