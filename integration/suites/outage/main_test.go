// Package outage_test makes the API server fail, and others interfere, while the operator works.
package outage_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
)

// theLab is the management cluster of all tests here.
var theLab *lab.Lab

const (
	shard = "shard"
	// hosts is the number of hosts for each role.
	hosts = 4
	// length is the duration of an outage. It is longer than the operator's first retries.
	length = 3 * time.Second
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := 1
	err := start(context.Background())
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, "starting the management cluster:", err)
	}
	if theLab == nil {
		return code
	}
	if err := theLab.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the management cluster:", err)
		return 1
	}
	return code
}

func start(ctx context.Context) error {
	var err error
	theLab, err = lab.Start(ctx, managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	if err != nil {
		return err
	}
	for _, role := range []string{key.RoleMaster, key.RoleWorker} {
		if _, err := theLab.AddNodes(ctx, hosts, map[string]string{key.LabelManagementNodesRole: role}); err != nil {
			return err
		}
	}
	return nil
}

func ofShard(name string) lab.Option {
	return func(c *service.Config) { c.Selector = labels.SelectorFromSet(labels.Set{shard: name}) }
}

// makeCluster builds a KVMConfig with one master and two workers.
func makeCluster(id, shardName string) *v1alpha1.KVMConfig {
	return fixture.MakeCluster(id).Workers(2).Label(shard, shardName).Obj()
}

// roll changes the boot data of every node.
func roll(c *v1alpha1.KVMConfig) {
	c.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.35.1"}
}

// pass waits while the operator must not end.
func pass(t *testing.T, operator *lab.Operator, d time.Duration) {
	t.Helper()
	select {
	case <-operator.Ended():
		t.Fatal("the operator has ended")
	case <-time.After(d):
	}
}

var host = regexp.MustCompile(`node-[0-9]+`)

// dump returns what the operator created for a cluster, as text that can be compared between clusters: without the
// addresses and names of pods and hosts.
func dump(t *testing.T, config *v1alpha1.KVMConfig) map[string]string {
	t.Helper()
	all := theLab.Dump(t, config)
	for name, text := range all {
		if strings.HasPrefix(name, "Endpoint") {
			text = "..."
		}
		all[name] = host.ReplaceAllString(text, "HOST")
	}
	return all
}

// onePodEach fails unless every node has exactly one pod.
func onePodEach(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	var pods corev1.PodList
	if err := theLab.Client.List(context.Background(), &pods, client.InNamespace(key.Namespace(config.Spec.Cluster.ID))); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, pod := range pods.Items {
		count[pod.Labels[key.LabelNode]]++
	}
	if len(count) != 3 || len(pods.Items) != 3 {
		t.Errorf("pods by node: %v", count)
	}
}
