package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// example is an observation of a KVMConfig with one master and one worker and the given pods.
func example(pods ...corev1.Pod) observation {
	return observation{
		config: &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"cluster": map[string]any{
				"id": "demo1", "masters": []any{map[string]any{"id": "m1"}}, "workers": []any{map[string]any{"id": "w1"}},
			}},
			"status": map[string]any{"conditions": []any{
				map[string]any{"type": "Ready", "status": "False", "reason": "Waiting", "message": "deployment: not yet"},
				map[string]any{"type": "Stalled", "status": "False", "reason": "NoProblem"},
			}},
		}},
		pods: pods,
	}
}

func pod(name string, ready corev1.ConditionStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, Message: "the gate is closed"}},
		},
	}
}

func terminating(pod corev1.Pod) corev1.Pod {
	now := metav1.Now()
	pod.DeletionTimestamp = &now
	return pod
}

func TestAllReady(t *testing.T) {
	for name, test := range map[string]struct {
		seen observation
		want bool
	}{
		"a deleted KVMConfig":          {seen: observation{}, want: false},
		"no pods":                      {seen: example(), want: false},
		"a pod is missing":             {seen: example(pod("master-m1", "True")), want: false},
		"a pod is not Ready":           {seen: example(pod("master-m1", "True"), pod("worker-w1", "False")), want: false},
		"a Ready pod is being deleted": {seen: example(pod("master-m1", "True"), terminating(pod("worker-w1", "True"))), want: false},
		"every pod is Ready":           {seen: example(pod("master-m1", "True"), pod("worker-w1", "True")), want: true},
		"a former pod is being deleted": {
			seen: example(pod("master-m1", "True"), pod("worker-w1", "True"), terminating(pod("worker-w1-old", "True"))), want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := allReady(test.seen); got != test.want {
				t.Errorf("allReady is %v, want %v", got, test.want)
			}
		})
	}
}

func TestBlockersNameWhatIsWrong(t *testing.T) {
	got := strings.Join(example(pod("master-m1", "True"), pod("worker-w1", "False")).blockers(), "\n")
	want := "condition Ready is False: Waiting: deployment: not yet\n" +
		"pod worker-w1 is not Ready: Ready is False: the gate is closed"
	if got != want {
		t.Errorf("blockers are\n%s\nwant\n%s", got, want)
	}
}

func TestViewWithoutTerminalPrintsOnlyChanges(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out, began: time.Now(), previous: map[string]row{}}
	for name, step := range []struct {
		seen observation
		want []string
	}{
		{example(), []string{"condition Ready: False Waiting deployment: not yet", "condition Stalled: False NoProblem"}},
		{example(), nil},
		{example(pod("worker-w1", "False")), []string{"pod worker-w1: Running not ready node-1 10.0.0.1"}},
		{example(pod("worker-w1", "True")), []string{"pod worker-w1: Running ready node-1 10.0.0.1"}},
		{example(terminating(pod("worker-w1", "True"))), []string{"pod worker-w1: Terminating ready node-1 10.0.0.1"}},
		{example(), []string{"pod worker-w1: gone"}},
	} {
		out.Reset()
		v.show(rows(step.seen))
		var got []string
		for line := range strings.Lines(out.String()) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
			got = append(got, text)
		}
		if strings.Join(got, "\n") != strings.Join(step.want, "\n") {
			t.Errorf("step %d printed\n%q\nwant\n%q", name, got, step.want)
		}
	}
}

func TestViewOnTerminalDrawsInPlace(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out, began: time.Now(), size: func() (int, int) { return 30, 5 }}
	v.show(rows(example(pod("worker-w1", "True"))))
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("the first table moves the cursor: %q", out.String())
	}
	out.Reset()
	v.show(rows(example(pod("worker-w1", "True"))))
	if !strings.HasPrefix(out.String(), "\x1b[4A\x1b[J") {
		t.Errorf("the second table does not replace the four lines of the first: %q", out.String())
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Errorf("a terminal of 5 lines shows %d lines, want 4: %q", len(lines), lines)
	}
	for _, line := range lines[1:] {
		if len([]rune(line)) > 30 {
			t.Errorf("line %q is wider than the terminal", line)
		}
	}
}
