package behaviour_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
)

// lifeLog records the life of a cluster.
const lifeLog = "testdata/life.log"

// TestLifeOfAClusterIsInTheLog compares what the operator logs about a cluster that is created, changed and deleted with
// testdata/life.log, which UPDATE=1 rewrites. The number and order of writes depend on timing, so each line occurs once,
// and lines are sorted.
func TestLifeOfAClusterIsInTheLog(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile(lifeLog)
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{recorded: string(recorded)}
	theLab.Run(t, ofShard("logged"), func(c *service.Config) { c.Logger = funcr.NewJSON(log.add, funcr.Options{}) })
	config := createReady(t, fixture.MakeCluster("log01").Label(shard, "logged").Workers(1).Obj())
	awaitServed(t, config)
	got := log.take("created")
	change(t, config, addSSHKey)
	theLab.AwaitReady(t, config)
	awaitServed(t, config)
	got += log.take("changed")
	theLab.Delete(t, config)
	theLab.AwaitGone(t, config)
	got += log.take("deleted")

	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(lifeLog, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(log.recorded, got); diff != "" {
		t.Errorf("the log says something else (-recorded +logged, UPDATE=1 writes it):\n%s", diff)
	}
}

// awaitServed waits until the Services of a cluster have exactly its pods, because a controller of its own writes them.
func awaitServed(t *testing.T, config *v1alpha1.KVMConfig) {
	t.Helper()
	namespace := client.InNamespace(key.Namespace(config.Spec.Cluster.ID))
	lab.Eventually(t, lab.Timeout, func() error {
		for _, role := range []string{key.RoleMaster, key.RoleWorker} {
			var pods corev1.PodList
			var endpoints corev1.Endpoints
			if err := theLab.Client.List(t.Context(), &pods, namespace, client.MatchingLabels{key.LabelApp: role}); err != nil {
				return err
			}
			if err := theLab.Client.Get(t.Context(), client.ObjectKey{Namespace: string(namespace), Name: role}, &endpoints); err != nil {
				return err
			}
			if len(endpoints.Subsets) != 1 || len(pods.Items) != 1 || endpoints.Subsets[0].Addresses[0].IP != pods.Items[0].Status.PodIP {
				return fmt.Errorf("Service %s has %v", role, endpoints.Subsets)
			}
		}
		return nil
	})
}

// lines are the logged lines.
type lines struct {
	// recorded is the log that is wanted.
	recorded string
	mu       sync.Mutex
	all      []string
}

// random matches the random suffixes of pod names.
var random = regexp.MustCompile(`(Pod \S+)-[a-z0-9]{6,10}-[a-z0-9]{5}\b`)

// add keeps which change happened to which object, and that nodes and the whole cluster are Ready. It omits what
// depends on timing: messages and intermediate conditions.
func (l *lines) add(text string) {
	line := map[string]any{}
	if err := json.Unmarshal([]byte(text), &line); err != nil || line["kvmconfig"] == nil && line["pod"] == nil {
		return
	}
	said := fmt.Sprint(line["msg"])
	switch said {
	case "condition changed":
		if line["type"] != "Ready" || line["status"] != "True" {
			return
		}
		said += fmt.Sprintf(" %s %s", line["type"], line["status"])
	case "handler outcome changed":
		if line["handler"] != "deployment" || line["reason"] != "Done" {
			return
		}
		said += fmt.Sprintf(" %s %s", line["handler"], line["reason"])
	case "node changed":
		if line["phase"] != "Ready" {
			return
		}
		said += fmt.Sprintf(" %s %s %s", line["role"], line["node"], line["phase"])
	case "node is gone":
		said += fmt.Sprintf(" %s %s", line["role"], line["node"])
	default:
		if line["object"] == nil {
			return
		}
		said += fmt.Sprintf(" %s", line["object"])
		for _, field := range []string{"handler", "type", "status", "reason"} {
			if value, there := line[field]; there {
				said += fmt.Sprintf(" %s=%s", field, value)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf("%s: %s", line["controller"], random.ReplaceAllString(said, "$1-…")))
}

// logging is how long the operator may take to log a write after its effect can be seen.
const logging = 10 * time.Second

// take returns what was logged since the last call, under a heading. The operator logs a write after the API server's
// answer, so take waits until the recorded lines are there.
func (l *lines) take(heading string) string {
	for began := time.Now(); time.Since(began) < logging; time.Sleep(20 * time.Millisecond) {
		if os.Getenv("UPDATE") == "" && strings.Contains(l.recorded+"# ", l.section(heading)+"# ") {
			break
		}
	}
	section := l.section(heading)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
	return section
}

func (l *lines) section(heading string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.all)
	slices.Sort(all)
	return "# " + heading + "\n" + strings.Join(slices.Compact(all), "\n") + "\n"
}
