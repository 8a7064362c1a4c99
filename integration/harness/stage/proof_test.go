package stage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// simulated is kubectl on a workload cluster of two workers with a pod of the Deployment on each.
type simulated struct {
	nodes, logs string
	answers     []string // of the Service; the last one is repeated
	asked       int
	fails       string // the start of the command that fails
}

func (s *simulated) kubectl(_ context.Context, _ string, arguments ...string) (string, error) {
	command := strings.Join(arguments, " ")
	switch {
	case s.fails != "" && strings.Contains(command, s.fails):
		return "", fmt.Errorf("kubectl %s: it is out of order", command)
	case strings.HasPrefix(command, "get nodes"):
		return s.nodes, nil
	case strings.HasPrefix(command, "get pods"):
		return "web-1 worker-w1\nweb-2 worker-w2\n", nil
	case strings.HasPrefix(command, "exec"):
		s.asked++
		return s.answers[min(s.asked, len(s.answers))-1], nil
	case strings.HasPrefix(command, "logs"):
		return s.logs, nil
	default:
		return "", nil
	}
}

const readyNodes = "master-m1 True v1.35.4 Linux\nworker-w1 True v1.35.4 Linux\n"

func TestProofTellsWhatDoesNotWork(t *testing.T) {
	taking := []string{"web-1", "web-2", "web-1", "web-1", "web-2"}
	for name, test := range map[string]struct {
		simulated simulated
		answer    string // through the forwarded port
		want      string // part of the error, empty for none
	}{
		"everything works":                   {simulated{nodes: readyNodes, logs: "answers\n", answers: taking}, "web-1", ""},
		"a Node is not Ready":                {simulated{nodes: readyNodes + "worker-w2 False v1.35.4 Linux\n"}, "", "not Ready: worker-w2 False"},
		"an add-on does not come up":         {simulated{nodes: readyNodes, fails: "deployment/coredns"}, "", "waiting for deployment/coredns in namespace kube-system"},
		"the Deployment does not come up":    {simulated{nodes: readyNodes, fails: "deployment/web"}, "", "out of order"},
		"only one pod is behind the Service": {simulated{nodes: readyNodes, answers: []string{"web-1"}}, "", "is not answered by web-2"},
		"the name is not known":              {simulated{nodes: readyNodes, fails: "exec"}, "", "is not answered by web-1, web-2"},
		"logs are empty":                     {simulated{nodes: readyNodes, answers: taking}, "", "logs of pod web-1 are empty"},
		"another pod answers the forwarding": {simulated{nodes: readyNodes, logs: "answers\n", answers: taking}, "web-2", `answers "web-2"`},
		"no answer to the port's forwarder":  {simulated{nodes: readyNodes, logs: "answers\n", answers: taking}, "", "forwarding a port to pod web-1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := proof{
				kubectl: test.simulated.kubectl, say: t.Logf, manifest: filepath.Join("..", "..", "..", Web), pause: time.Millisecond,
				forward: func(context.Context, string) (string, error) {
					if test.answer == "" {
						return "", errors.New("connection refused")
					}
					return test.answer, nil
				},
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := p.all(ctx)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("prove says %v, want %q", err, test.want)
			}
		})
	}
}

func TestTheFirstLineOfPortForwardIsAsked(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "web-1") }))
	defer server.Close()
	line := "Forwarding from " + strings.TrimPrefix(server.URL, "http://") + " -> 8080\n"
	if answer, err := askFirst(t.Context(), strings.NewReader(line)); err != nil || answer != "web-1" {
		t.Errorf("the answer is %q (%v)", answer, err)
	}
	if _, err := askFirst(t.Context(), strings.NewReader("error: pod web-1 not found")); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("without a port the error is %v", err)
	}
}
