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

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/fixture"
	"github.com/kvm-operator/kvm-operator/service"
)

// TestLifeOfAClusterIsInTheLog records what the log says of a cluster that is created, changed and deleted, in testdata/life.log. UPDATE=1
// rewrites it. How often and in which order things are written depends on the time that others take, so each line stands once, sorted.
func TestLifeOfAClusterIsInTheLog(t *testing.T) {
	t.Parallel()
	log := &lines{}
	theLab.Run(t, ofShard("logged"), func(c *service.Config) { c.Logger = funcr.NewJSON(log.add, funcr.Options{}) })
	config := createReady(t, fixture.MakeCluster("log01").Label(shard, "logged").Workers(1).Obj())
	got := log.take("created")
	change(t, config, addSSHKey)
	theLab.AwaitReady(t, config)
	got += log.take("changed")
	theLab.Delete(t, config)
	theLab.AwaitGone(t, config)
	got += log.take("deleted")

	const record = "testdata/life.log"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(record, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the log says something else (-recorded +logged, UPDATE=1 writes it):\n%s", diff)
	}
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	all []string
}

// random are the endings that names of pods get.
var random = regexp.MustCompile(`(Pod \S+)-[a-z0-9]{6,10}-[a-z0-9]{5}\b`)

// add keeps what a line says happened to which object, and that nodes and the whole cluster are Ready. What depends on the moment is left out:
// messages, and conditions on the way.
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

// take returns what was logged since it was called last, under a heading.
func (l *lines) take(heading string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	slices.Sort(all)
	return "# " + heading + "\n" + strings.Join(slices.Compact(all), "\n") + "\n"
}
