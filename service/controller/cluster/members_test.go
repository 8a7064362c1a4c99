package cluster

import (
	"encoding/json"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// TestWhatAKeeperLogsNamesTheKVMConfig: the lines about etcd members name their cluster like those of the controllers.
func TestWhatAKeeperLogsNamesTheKVMConfig(t *testing.T) {
	line := map[string]any{}
	m := NewMembers(func(types.NamespacedName) {}, nil)
	m.log = funcr.NewJSON(func(text string) {
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("line %s: %v", text, err)
		}
	}, funcr.Options{})
	m.newKeeper = func(logger logr.Logger, f *fence.Fence, changed func()) *etcd.Keeper {
		logger.Info("changed etcd")
		return etcd.NewKeeper(logger, f, changed)
	}
	m.want(types.NamespacedName{Namespace: "default", Name: "ab1cd"}, etcd.Access{}, nil)
	want := map[string]any{"logger": "", "level": 0.0, "msg": "changed etcd", "kvmconfig": "default/ab1cd"}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("a keeper logs something else (-want +got):\n%s", diff)
	}
}
