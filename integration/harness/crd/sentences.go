package crd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refused fails the test unless err is a refusal of the API server with one sentence, which is what it says of a field:
// path, kind of error and message.
func Refused(t *testing.T, err error, sentence string) {
	t.Helper()
	if diff := cmp.Diff([]string{sentence}, sentences(err)); diff != "" {
		t.Errorf("the API server says something else (-want +got):\n%s", diff)
	}
}

// Answered is Refused, and if the sentence is empty, it fails the test if err is not nil.
func Answered(t *testing.T, err error, sentence string) {
	t.Helper()
	if sentence != "" {
		Refused(t, err, sentence)
	} else if err != nil {
		t.Errorf("the API server refuses: %v", err)
	}
}

// sentences are what the API server has to say against an object. The remark that it did not get as far as all rules is
// left out.
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

// EveryRuleSpeaks fails the test if the definition in a file has a rule that none of the sentences is of: nothing tests
// such a rule. It returns the number of rules.
func EveryRuleSpeaks(t *testing.T, file string, said []string) int {
	t.Helper()
	rules := 0
	for _, field := range Fields(t, file) {
		for _, rule := range field.Rules {
			rules++
			if !rule.speaks(said) {
				t.Errorf("no test runs into the rule of %s: %s", rule.Path, rule.Message)
			}
		}
	}
	return rules
}

// speaks says whether one of the sentences is that of the rule. Fields of one name share their rules, and what follows
// the semicolon is advice.
func (r Rule) speaks(said []string) bool {
	name := strings.TrimSuffix(r.Path[strings.LastIndex(r.Path, ".")+1:], "[]")
	sentence, _, _ := strings.Cut(r.Message, ";")
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
