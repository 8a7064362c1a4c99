package behaviour_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
)

const (
	// described records what kubectl describe says of a healthy cluster.
	described = "testdata/describe.txt"
	// twoScreens is the goal of how many lines that has: two screens of fifty lines. The API's empty objects, its legacy
	// status and its conditions take more, so the test says how far off it is, and the record keeps it from growing.
	twoScreens = 100
)

// TestDescribeOfAHealthyCluster compares what kubectl describe says of a cluster of a master and two workers that is Ready
// with testdata/describe.txt, which UPDATE=1 rewrites.
func TestDescribeOfAHealthyCluster(t *testing.T) {
	t.Parallel()
	config := createReady(t, fixture.MakeCluster("desc1").Label(shard, shared).Workers(2).Obj())
	lab.Eventually(t, lab.Timeout, func() error { // the status of the original is the last to be written
		if last := theLab.Current(t, config).Status.Cluster; last == nil || len(last.Conditions) == 0 || last.Conditions[0].Type != "Created" || len(last.Nodes) != 3 {
			return fmt.Errorf("the legacy status is %+v", last)
		}
		return nil
	})
	kubectl := exec.CommandContext(t.Context(), "../../../.tools/kubectl", "--kubeconfig="+theLab.Kubeconfig(), "describe", "kvmconfig", config.Name, "--namespace="+config.Namespace)
	out, err := kubectl.CombinedOutput()
	if err != nil {
		t.Fatalf("describing the KVMConfig: %v: %s", err, out)
	}
	t.Logf("kubectl describe prints %d lines, the goal is at most %d", strings.Count(string(out), "\n"), twoScreens)
	got := steady(string(out))
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(described, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(described)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("kubectl describe says something else (-recorded +described, UPDATE=1 writes it):\n%s", diff)
	}
}

// unsteady are the parts of a description that differ from run to run, or from release to release, and what stands for them.
var unsteady = []struct {
	part *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}`), "DATE"},
	{regexp.MustCompile(`(UID: +)\S+`), "${1}UID"},
	{regexp.MustCompile(`(Resource Version: +)\d+`), "${1}VERSION"},
	{regexp.MustCompile(`((?:Container Linux|Etcd|Kubernetes): +)\d\S+`), "${1}VERSION"},
	{regexp.MustCompile(`(Etcd Mark: +)\S+`), "${1}MARK"},
	{regexp.MustCompile(`(Host: +)\S+`), "${1}HOST"},
	{regexp.MustCompile(`(Ip: +)[\d.]+\n`), "${1}ADDRESS\n"},
	{regexp.MustCompile(`((?:master|worker)-\w+)-[a-z0-9]{6,10}-[a-z0-9]{5}\b`), "$1-RANDOM"},
	{regexp.MustCompile(`[ \t]+\n`), "\n"},
	// The events are as many, and in such an order, as timing has it.
	{regexp.MustCompile(`(?s)\nEvents:.*`), "\nEvents:\n"},
}

// steady replaces what differs.
func steady(text string) string {
	for _, u := range unsteady {
		text = u.part.ReplaceAllString(text, u.as)
	}
	return strings.TrimRight(text, "\n") + "\n"
}
