package jsonlog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/jsonlog"
)

// lines decodes what was written, one object a line.
func lines(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		content := map[string]any{}
		if err := json.Unmarshal([]byte(line), &content); err != nil {
			t.Fatalf("%q is not a line of JSON: %s", line, err)
		}
		all = append(all, content)
	}
	return all
}

func TestALineOfAPassHasTheKeysOfTheReferencePage(t *testing.T) {
	var out bytes.Buffer
	before := time.Now().UTC().Truncate(time.Millisecond)
	constructor := jsonlog.Constructor(jsonlog.New(&out, "info"), "Machine")
	logger := constructor(&reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "db-0"}})
	logger.Info("the guest runs", jsonlog.KeyPhase, "Running")
	line := lines(t, out.String())[0]
	at, _ := line["timestamp"].(string)
	when, err := time.Parse(time.RFC3339, at)
	if err != nil || !strings.HasSuffix(at, "Z") || when.Before(before) || when.After(time.Now()) {
		t.Errorf("the timestamp is %q (%v), want now in UTC", at, err)
	}
	delete(line, "timestamp")
	want := map[string]any{"level": "info", "controller": "Machine", "machine": "db-0", "namespace": "shop", "phase": "Running", "message": "the guest runs"}
	if !maps.Equal(line, want) {
		t.Errorf("the line is %v, want %v", line, want)
	}
}

func TestLinesOutsideOfAPassNameTheController(t *testing.T) {
	var out bytes.Buffer
	jsonlog.Constructor(jsonlog.New(&out, "info"), "NetworkConfiguration")(nil).Info("starting")
	line := lines(t, out.String())[0]
	if line["controller"] != "NetworkConfiguration" || line["namespace"] != nil {
		t.Errorf("the line is %v", line)
	}
}

func TestLevels(t *testing.T) {
	for level, want := range map[string]string{
		"debug": "debug info error",
		"info":  "info error",
		"warn":  "error",
		"error": "error",
		"loud":  "info error",
	} {
		var out bytes.Buffer
		logger := jsonlog.New(&out, level)
		logger.V(2).Info("deep")
		logger.V(1).Info("deeper than info")
		logger.Info("usual")
		logger.Error(errors.New("refused"), "wrong")
		var got []string
		for _, line := range lines(t, out.String()) {
			got = append(got, line["level"].(string))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("with level %s the lines are of %q, want %q", level, text, want)
		}
	}
	if got := strings.Join(jsonlog.Levels(), " "); got != "debug error info warn" {
		t.Errorf("the levels are %s", got)
	}
}

func TestAnErrorIsAKeyAndAnObjectIsOnlyItsName(t *testing.T) {
	var out bytes.Buffer
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "boot"}, Data: map[string][]byte{"user-data": []byte("hunter2")}}
	jsonlog.New(&out, "info").Error(errors.New("two\nlines"), "reading", "secret", secret)
	line := lines(t, out.String())[0]
	if line["error"] != "two\nlines" || line["message"] != "reading" {
		t.Errorf("the line is %v", line)
	}
	if strings.Contains(out.String(), "aHVudGVyMg") || strings.Contains(out.String(), "hunter2") {
		t.Errorf("the content of a Secret is in the log: %s", out.String())
	}
}

func TestNoLineIsLeftOut(t *testing.T) {
	const many = 1000
	var out bytes.Buffer
	logger := jsonlog.New(&out, "info")
	for range many {
		logger.Info("the same")
	}
	if n := len(slices.Collect(strings.Lines(out.String()))); n != many {
		t.Errorf("%d of %d lines are written", n, many)
	}
}
