package cloudconfig

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// verdict is how far the rendered output satisfies an item of the benchmark.
type verdict string

const (
	met verdict = "met"
	// otherwise means that the intent is met in a way that a scanner does not find.
	otherwise verdict = "met otherwise"
	notMet    verdict = "not met"
	// yours means that it is up to the users of the cluster; the rendered output does not determine it.
	yours verdict = "yours"
)

// item is an item of the CIS Kubernetes Benchmark v1.12.
type item struct {
	number string
	// wants is what the item requires.
	wants   string
	verdict verdict
	// how is how a node or the add-ons meet the item, or why not.
	how string
	// check checks the rendered output. The check of an item that is not met has to fail, so that the table is
	// corrected once it is met.
	check inspection
}

// benchmark is the benchmark's sections, each with the number of its items.
var benchmark = []struct {
	number, title string
	length        int
	items         []item
}{
	{"1.1", "Files of the control plane", 21, controlPlaneFiles},
	{"1.2", "API server", 30, apiServerItems},
	{"1.3", "Controller manager", 7, controllerManagerItems},
	{"1.4", "Scheduler", 2, schedulerItems},
	{"2", "etcd", 7, etcdItems},
	{"3.1", "Authentication of users", 3, userItems},
	{"3.2", "Audit log", 2, auditItems},
	{"4.1", "Files of nodes", 10, nodeFiles},
	{"4.2", "Kubelet", 14, kubeletItems},
	{"4.3", "kube-proxy", 1, proxyItems},
	{"5.1", "RBAC and service accounts", 13, rightsItems},
	{"5.2", "Pod Security Standards", 12, podSecurityItems},
	{"5.3", "Network policies", 2, networkItems},
	{"5.4", "Secrets", 2, secretItems},
	{"5.5", "Admission control", 1, provenanceItems},
	{"5.6", "General policies", 4, generalItems},
}

// TestNodesMeetTheBenchmark: the boot data of every kind of node, and the add-ons, do what the table says.
func TestNodesMeetTheBenchmark(t *testing.T) {
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			node := newBootedNode(t, params())
			for _, section := range benchmark {
				if section.number[0] != '4' && !node.master {
					continue
				}
				for _, i := range section.items {
					compareItem(t, i, node)
				}
			}
		})
	}
}

func compareItem(t *testing.T, i item, node *bootedNode) {
	t.Helper()
	if i.check == nil {
		return
	}
	err := i.check(node)
	switch {
	case i.verdict == notMet && err == nil:
		t.Errorf("%s (%s) is met by now; correct the table", i.number, i.wants)
	case i.verdict != notMet && err != nil:
		t.Errorf("%s (%s) is not met: %s", i.number, i.wants, err)
	}
}

// TestEveryCheckOfTheBenchmarkCanFail on a node whose files are open and whose components are configured to do the
// opposite.
func TestEveryCheckOfTheBenchmarkCanFail(t *testing.T) {
	violating := violate(newBootedNode(t, masterParams()))
	for _, section := range benchmark {
		for _, i := range section.items {
			if (i.verdict == met || i.verdict == otherwise) && (i.check == nil || i.check(violating) == nil) {
				t.Errorf("%s (%s) is met by a node that meets nothing", i.number, i.wants)
			}
		}
	}
}

func TestTheTableHasEveryItemOfTheBenchmark(t *testing.T) {
	for _, section := range benchmark {
		if len(section.items) != section.length {
			t.Errorf("section %s has %d items, want %d", section.number, len(section.items), section.length)
		}
		for n, i := range section.items {
			if want := fmt.Sprintf("%s.%d", section.number, n+1); i.number != want || i.wants == "" || i.how == "" {
				t.Errorf("item %+v stands where %s is to be, or lacks words", i, want)
			}
		}
	}
}

const (
	benchmarkDoc = "../../../docs/cis.md"
	// benchmarkMark ends the manually written part of the document.
	benchmarkMark = "<!-- UPDATE=1 go test ./pkg/cluster/cloudconfig -run Recorded writes what follows. -->\n"
)

// TestTheBenchmarkIsAsRecorded in the documentation. UPDATE=1 rewrites the table there.
func TestTheBenchmarkIsAsRecorded(t *testing.T) {
	raw, err := os.ReadFile(benchmarkDoc)
	if err != nil {
		t.Fatal(err)
	}
	words, recorded, found := strings.Cut(string(raw), benchmarkMark)
	if !found {
		t.Fatalf("%s lacks the line %s", benchmarkDoc, benchmarkMark)
	}
	want := benchmarkTable()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(benchmarkDoc, []byte(words+benchmarkMark+want), 0o644); err != nil {
			t.Fatal(err)
		}
		recorded = want
	}
	if recorded != want {
		t.Errorf("the table in %s is another one (UPDATE=1 writes it); want:\n%s", benchmarkDoc, want)
	}
}

func benchmarkTable() string {
	var b strings.Builder
	counts := map[verdict]int{}
	for _, section := range benchmark {
		for _, i := range section.items {
			counts[i.verdict]++
		}
	}
	fmt.Fprintf(&b, "\nOf the items %d are %s, %d %s, %d %s, and %d %s.\n",
		counts[met], met, counts[otherwise], otherwise, counts[notMet], notMet, counts[yours], yours)
	for _, section := range benchmark {
		fmt.Fprintf(&b, "\n### %s %s\n\n| item | it wants | | how, or why not |\n|---|---|---|---|\n", section.number, section.title)
		for _, i := range section.items {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", i.number, i.wants, i.verdict, i.how)
		}
	}
	return b.String()
}
