package behaviour_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

const (
	// described records what kubectl describe says of a healthy cluster.
	described = "testdata/describe.txt"
	// mostLines is how many lines that may have. Each of the six conditions takes six, the defaults thirty, and the legacy status
	// fourteen.
	mostLines = 136
)

// TestDescribeOfAHealthyCluster compares what kubectl describe says of the cluster of docs/examples/minimal.yaml that is
// Ready with testdata/describe.txt, which UPDATE=1 rewrites.
func TestDescribeOfAHealthyCluster(t *testing.T) {
	t.Parallel()
	config := createReady(t, smallest(t, "desc1"))
	lab.Eventually(t, lab.Timeout, func() error { // the status of the original is the last to be written
		if last := theLab.Current(t, config).Status.Cluster; last == nil || len(last.Conditions) == 0 || last.Conditions[0].Type != "Created" || len(last.Nodes) != 2 {
			return fmt.Errorf("the legacy status is %+v", last)
		}
		return nil
	})
	kubectl := exec.CommandContext(t.Context(), "../../../.tools/kubectl", "--kubeconfig="+theLab.Kubeconfig(), "describe", "kvmconfig", config.Name, "--namespace="+config.Namespace)
	out, err := kubectl.CombinedOutput()
	if err != nil {
		t.Fatalf("describing the KVMConfig: %v: %s", err, out)
	}
	if lines := strings.Count(string(out), "\n"); lines > mostLines {
		t.Errorf("kubectl describe prints %d lines, want at most %d", lines, mostLines)
	}
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

// smallest returns the cluster of docs/examples/minimal.yaml with another id.
func smallest(t *testing.T, id string) *v1alpha1.KVMConfig {
	t.Helper()
	manifest, err := os.ReadFile("../../../docs/examples/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.KVMConfig{}
	if err := yaml.UnmarshalStrict(bytes.ReplaceAll(manifest, []byte("ab1cd"), []byte(id)), config); err != nil {
		t.Fatal(err)
	}
	config.Labels = map[string]string{shard: shared}
	return config
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
