package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const id = "e2e01"

// web answers with the names of its pods, one on each worker.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {labelSelector: {matchLabels: {app: web}}, topologyKey: kubernetes.io/hostname}
      containers:
      - {name: web, image: "docker.io/kvm-operator/web:1", ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /, port: 8080}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// TestLifeOfACluster is the whole way: founding, work, growth, end.
func TestLifeOfACluster(t *testing.T) {
	l := setUp(t, 1, 2)
	if err := l.Apply(t.Context(), manifest(id, []string{"m1"}, []string{"w1", "w2"})); err != nil {
		t.Fatal(err)
	}
	l.awaitReady(3)
	l.pods("kube-system", "k8s-app=kube-dns")
	l.works()
	t.Log("a worker more")
	if err := l.Apply(t.Context(), manifest(id, []string{"m1"}, []string{"w1", "w2", "w3"})); err != nil {
		t.Fatal(err)
	}
	l.awaitReady(4)
	l.ends()
}

// awaitReady waits until the KVMConfig is Ready and the workload cluster has that many Ready Nodes.
func (l *life) awaitReady(nodes int) {
	l.t.Helper()
	l.eventually(patience, func() error {
		generation, status := l.management("get", "kvmconfig", id, "--output=jsonpath={.metadata.generation}"), l.management(
			"get", "kvmconfig", id, `--output=jsonpath={.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].status}`)
		if status == generation+" True" {
			return nil
		}
		message := l.management("get", "kvmconfig", id, `--output=jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
		return fmt.Errorf("%s", message)
	})
	if l.kubeconfig == "" {
		var err error
		if l.kubeconfig, err = l.Kubeconfig(l.t.Context(), id); err != nil {
			l.t.Fatal(err)
		}
	}
	ready := l.workload("", "get", "nodes", `--output=jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
	if diff := cmp.Diff(strings.Repeat("True ", nodes), ready); diff != "" {
		l.t.Fatalf("other Nodes than wanted are Ready (-want +got):\n%s", diff)
	}
	l.t.Log("\n" + l.workload("", "get", "nodes", "--output=wide"))
}

// pods waits until the pods with the label are Ready.
func (l *life) pods(namespace, label string) {
	l.t.Helper()
	l.workload("", "--namespace="+namespace, "wait", "--for=condition=Ready", "pods", "--selector="+label, "--timeout=5m")
}

// works says that a Service is reached by its name on both workers, and that logs, exec and port-forward work.
func (l *life) works() {
	l.t.Helper()
	l.workload(web, "apply", "--filename=-")
	l.workload("", "rollout", "status", "deployment/web", "--timeout=5m")
	names := strings.Fields(l.workload("", "get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].metadata.name}"))
	for _, from := range names {
		seen := map[string]bool{}
		l.eventually(2*time.Minute, func() error {
			answer, err := l.Kubectl(l.t.Context(), l.kubeconfig, "", "exec", from, "--", "/usr/bin/web", "get", "http://web.default.svc.cluster.local/")
			if err != nil {
				return err
			}
			seen[strings.TrimSpace(answer)] = true
			for _, name := range names {
				if !seen[name] {
					return fmt.Errorf("pod %s has not reached %s by the Service's name", from, name)
				}
			}
			return nil
		})
	}
	if text := l.workload("", "logs", names[0]); text == "" {
		l.t.Error("the logs of a pod are empty")
	}
	l.forward(names[0])
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)

// forward asks a pod through kubectl port-forward.
func (l *life) forward(pod string) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join("..", "..", ".tools", "kubectl"), "--kubeconfig="+l.kubeconfig, "port-forward", "--address=127.0.0.1", "pod/"+pod, ":8080")
	output, err := command.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		l.t.Fatal(err)
	}
	line := make([]byte, 256)
	n, err := output.Read(line)
	match := forwarding.FindSubmatch(line[:n])
	if err != nil || match == nil {
		l.t.Fatalf("kubectl port-forward says %q (%v)", line[:n], err)
	}
	response, err := http.Get("http://" + string(match[1]) + "/")
	if err != nil || response.StatusCode != http.StatusOK {
		l.t.Errorf("through the forwarded port: %v %v", response, err)
	}
	if err == nil {
		response.Body.Close()
	}
	cancel()
	_ = command.Wait() // it was killed
}

// ends deletes the cluster and waits until nothing of it is left, two minutes after its last machine at most.
func (l *life) ends() {
	l.t.Helper()
	l.management("delete", "kvmconfig", id, "--wait=false")
	l.eventually(patience, func() error {
		if names := l.management("--namespace="+id, "get", "pods", "--output=name"); names != "" {
			return fmt.Errorf("machines are left: %s", strings.Join(strings.Fields(names), " "))
		}
		return nil
	})
	l.eventually(2*time.Minute, func() error {
		for _, arguments := range [][]string{
			{"get", "kvmconfigs,namespaces", "--output=name"}, {"get", "secrets,clusterrolebindings", "--selector=giantswarm.io/cluster=" + id, "--all-namespaces", "--output=name"},
		} {
			for _, name := range strings.Fields(l.management(arguments...)) {
				if strings.HasPrefix(name, "kvmconfig") || strings.HasSuffix(name, "/"+id) || arguments[1] == "secrets,clusterrolebindings" {
					return fmt.Errorf("%s is left", name)
				}
			}
		}
		return nil
	})
}
