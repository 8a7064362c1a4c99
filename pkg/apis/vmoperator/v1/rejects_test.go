package v1_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A rejection is a change and the one sentence by which the API server refuses it.
type rejection struct{ change, want string }

// rejections are changes to testdata/minimal.yaml that the API server refuses.
func rejections() map[string]rejection {
	all := map[string]rejection{}
	for _, table := range []map[string]rejection{rejectedPods, rejectedMachines, rejectedDevices} {
		maps.Copy(all, table)
	}
	return all
}

func TestBadObjectsAreRefusedWithOneSentence(t *testing.T) {
	for name, test := range rejections() {
		t.Run(name, func(t *testing.T) {
			err := server.Create(context.Background(), load(t, "minimal", test.change), client.DryRunAll)
			if diff := cmp.Diff([]string{test.want}, sentences(err)); diff != "" {
				t.Errorf("the API server says something else (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEveryRuleRefusesSomething holds the tables complete: a rule of the CRD that no row runs into has no test.
func TestEveryRuleRefusesSomething(t *testing.T) {
	var said []string
	for _, table := range []map[string]rejection{rejections(), refusedStatuses} {
		for _, row := range table {
			said = append(said, row.want)
		}
	}
	for _, field := range fields(t, crd) {
		for _, rule := range field.rules {
			if !ruleRefuses(rule, said) {
				t.Errorf("no test runs into the rule of %s: %s", rule.path, rule.message)
			}
		}
	}
}

// ruleRefuses says whether one of the sentences is that of the rule. Fields of one name share their rules, and what
// follows the semicolon is advice.
func ruleRefuses(r rule, said []string) bool {
	name := strings.TrimSuffix(r.path[strings.LastIndex(r.path, ".")+1:], "[]")
	sentence, _, _ := strings.Cut(r.message, ";")
	for _, s := range said {
		path, message, _ := strings.Cut(s, ": ")
		if path == "<nil>" { // the object as a whole
			path = ""
		}
		if strings.HasSuffix(path, "]") { // one of a list, or of a map
			path = path[:strings.LastIndex(path, "[")]
		}
		if strings.HasSuffix("."+path, "."+name) && strings.Contains(message, sentence) {
			return true
		}
	}
	return false
}

// sentences are what the API server has to say against an object: field, kind of error and message. The remark that it
// did not get as far as all rules is left out.
func sentences(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return []string{fmt.Sprint(err)}
	}
	var said []string
	for _, cause := range status.Status().Details.Causes {
		if !strings.Contains(cause.Message, "some validation rules were not checked") {
			said = append(said, cause.Field+": "+cause.Message)
		}
	}
	return said
}
