// Package e2e_test runs the whole product: a real management cluster, the operator installed from its chart, and a
// workload cluster of emulated virtual machines, from its KVMConfig to its deletion.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/stage"
)

// patience is how long a machine may take from its pod to a Ready Node, beside other machines and on two busy cores.
const patience = time.Hour

// cleanUp is how long before its deadline a test stops its work and cleans up.
const cleanUp = 2 * time.Minute

// life is one workload cluster on a stage.
type life struct {
	*stage.Stage
	t          *recorder
	ctx        context.Context // ends with the test, or when a user interrupts it; then the test cleans up
	kubeconfig string
}

func setUp(t testing.TB, options stage.Options) *life {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	if limited, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, ok := limited.Deadline(); ok {
			ctx, stop = context.WithDeadline(ctx, deadline.Add(-cleanUp))
			t.Cleanup(stop)
		}
	}
	began := time.Now()
	options.Root, options.Say = root, func(format string, arguments ...any) {
		t.Logf("%6.1fs  "+format, append([]any{time.Since(began).Seconds()}, arguments...)...)
	}
	s, err := stage.Start(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	l := &life{Stage: s, t: &recorder{TB: t}, ctx: ctx}
	t.Cleanup(l.explain)
	return l
}

// recorder records why a test has failed.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, arguments ...any) {
	r.Helper()
	r.failures = append(r.failures, fmt.Sprintf(format, arguments...))
	r.TB.Errorf(format, arguments...)
}

func (r *recorder) Fatalf(format string, arguments ...any) {
	r.Helper()
	r.failures = append(r.failures, fmt.Sprintf(format, arguments...))
	r.TB.Fatalf(format, arguments...)
}

func (r *recorder) Fatal(arguments ...any) {
	r.Helper()
	r.failures = append(r.failures, fmt.Sprint(arguments...))
	r.TB.Fatal(arguments...)
}

// explain logs everything known about a failed test. The reason comes last because people and CI look at the end of a
// long output.
func (l *life) explain() {
	if !l.t.Failed() {
		return
	}
	defer func() { l.t.Logf("%s has failed:\n%s", l.t.Name(), strings.Join(l.t.failures, "\n")) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l.t.Log(l.OperatorLog(ctx))
	for _, arguments := range []string{
		"get kvmconfigs -A -o yaml", "get pods -A -o wide", "-n e2e01 describe pods", "-n e2e01 logs -l app=master --tail=40",
		"-n e2e01 logs -l app=worker --tail=40",
	} {
		text, err := l.Cluster.Kubectl(ctx, strings.Fields(arguments)...)
		l.t.Logf("kubectl %s: %v\n%s", arguments, err, text)
	}
	if l.kubeconfig == "" {
		return
	}
	for _, arguments := range []string{"get nodes -o wide", "get pods -A -o wide", "get events -A", "get csr"} {
		text, err := l.Kubectl(ctx, l.kubeconfig, "", strings.Fields(arguments)...)
		l.t.Logf("in the workload cluster, kubectl %s: %v\n%s", arguments, err, text)
	}
}

// management runs kubectl on the management cluster.
func (l *life) management(arguments ...string) string {
	l.t.Helper()
	return l.ask(func() (string, error) { return l.Cluster.Kubectl(l.ctx, arguments...) })
}

// workload runs kubectl on the workload cluster.
func (l *life) workload(input string, arguments ...string) string {
	l.t.Helper()
	return l.ask(func() (string, error) { return l.Kubectl(l.ctx, l.kubeconfig, input, arguments...) })
}

// unanswered matches kubectl's errors for an API server that does not answer, as one that shares two CPUs with
// everything else may.
var unanswered = regexp.MustCompile(`Unable to connect to the server|TLS handshake timeout|i/o timeout|http2: client connection lost|connection refused|was refused`)

// ask retries for some time when the API server does not answer.
func (l *life) ask(kubectl func() (string, error)) string {
	l.t.Helper()
	began := time.Now()
	text, err := kubectl()
	for err != nil && unanswered.MatchString(err.Error()) && time.Since(began) < silence && pause(l.ctx, time.Second) {
		l.t.Logf("asked again: %s", err)
		text, err = kubectl()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

// eventually waits until the condition holds and logs each of its errors once.
func (l *life) eventually(limit time.Duration, condition func() error) {
	l.t.Helper()
	began, last := time.Now(), ""
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Since(began) > limit {
			l.t.Fatalf("not within %s: %s", limit, err)
		}
		if text := err.Error(); text != last {
			l.t.Logf("  after %s: %s", time.Since(began).Round(time.Second), text)
			last = text
		}
		select {
		case <-l.ctx.Done():
			l.t.Fatalf("the test was interrupted or its time is over; at last: %s", err)
		case <-time.After(3 * time.Second):
		}
	}
}

// manifest returns a cluster with the given nodes.
func manifest(id string, masters, workers []string) string {
	return manifestOf(stage.FullImage, id, masters, workers)
}

// manifestOf returns a cluster whose machines boot the image.
func manifestOf(image, id string, masters, workers []string) string {
	list := func(ids []string, machine string) (nodes, machines string) {
		var n, m []string
		for _, node := range ids {
			n, m = append(n, "{id: "+node+"}"), append(m, machine)
		}
		return strings.Join(n, ", "), strings.Join(m, ", ")
	}
	masterNodes, masterMachines := list(masters, "{cpus: 2, memory: 3G}")
	workerNodes, workerMachines := list(workers, "{cpus: 1, memory: 2500M}")
	file := func(name string) string { return fmt.Sprintf("{url: \"file://%s/%s\"}", stage.GuestDirectory, name) }
	return fmt.Sprintf(`apiVersion: provider.giantswarm.io/v1alpha1
kind: KVMConfig
metadata: {name: %[1]s, namespace: default}
spec:
  cluster:
    id: %[1]s
    masters: [%[2]s]
    workers: [%[3]s]
    calico: {subnet: 192.168.0.0, cidr: 16}
    kubernetes: {api: {domain: api.%[1]s.k8s.example.org, clusterIPRange: 172.31.0.0/16}}
  kvm:
    masters: [%[4]s]
    workers: [%[5]s]
    k8sKVM: {acceleration: tcg}
  guestImage:
    name: stage
    kernel: %[6]s
    initrd: %[7]s
    rootFS: %[8]s
    kernelArguments: [console=ttyS0, quiet, nokaslr, tsc=reliable, no_timer_check, guest.autologin]
`, id, masterNodes, workerNodes, masterMachines, workerMachines, file("vmlinuz"), file("initrd.img"), file(image))
}
