package stage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// Web is the manifest, in a checkout, of a web server with a pod on each of two workers and of its Service.
	Web = "docs/examples/demo/web.yaml"
	// ServiceURL is the URL of web.yaml's Service.
	ServiceURL = "http://web.default.svc.cluster.local/"
	// rollout is how long programs may take to start on slow machines.
	rollout = "--timeout=10m"
)

// kubectl runs kubectl with an input and returns its output.
type kubectl func(ctx context.Context, input string, arguments ...string) (string, error)

// proof tests a running workload cluster from a user's point of view.
type proof struct {
	kubectl  kubectl
	say      func(format string, arguments ...any)
	manifest string // the path of web.yaml
	hosts    int    // the number of hosts for workers
	forward  func(ctx context.Context, pod string) (answer string, err error)
	pause    time.Duration // between two requests to a name that does not answer yet
}

// Prove tests the workload cluster of a kubeconfig step by step: its Nodes are Ready and its add-ons run, Web answers
// by the name of its Service from each of its pods, and logs, exec and port-forward work.
func (s *Stage) Prove(ctx context.Context, kubeconfig string) error {
	p := proof{
		kubectl: func(ctx context.Context, input string, arguments ...string) (string, error) {
			return s.Kubectl(ctx, kubeconfig, input, arguments...)
		},
		hosts: s.options.Workers, say: s.options.Say, manifest: filepath.Join(s.options.Root, Web), pause: time.Second,
		forward: func(ctx context.Context, pod string) (string, error) {
			return askThroughForward(ctx, s.tool("kubectl"), kubeconfig, pod)
		},
	}
	return p.all(ctx)
}

func (p proof) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.showNodes, p.awaitAddons, p.deploy, p.reachByName, p.stream} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// showNodes returns an error that names the Nodes that are not Ready.
func (p proof) showNodes(ctx context.Context) error {
	output, err := p.kubectl(ctx, "", "get", "nodes", "--no-headers",
		`--output=custom-columns=NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status,VERSION:.status.nodeInfo.kubeletVersion,IMAGE:.status.nodeInfo.osImage`)
	if err != nil {
		return err
	}
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "True" {
			return fmt.Errorf("a Node of the workload cluster is not Ready: %s", strings.TrimSpace(line))
		}
		p.say("Node %s is Ready: kubelet %s on %s", fields[0], fields[2], strings.Join(fields[3:], " "))
	}
	return nil
}

// addons are the add-ons that have to run before a pod has an address and a name, with their namespaces.
var addons = [][2]string{{"kube-flannel", "daemonset/kube-flannel-ds"}, {"kube-system", "daemonset/kube-proxy"}, {"kube-system", "deployment/coredns"}}

func (p proof) awaitAddons(ctx context.Context) error {
	for _, addon := range addons {
		p.say("waiting for %s in the workload cluster", addon[1])
		if _, err := p.kubectl(ctx, "", "--namespace="+addon[0], "rollout", "status", addon[1], rollout); err != nil {
			return fmt.Errorf("waiting for %s in namespace %s: %w", addon[1], addon[0], err)
		}
	}
	return nil
}

func (p proof) deploy(ctx context.Context) error {
	p.say("applying %s to the workload cluster: a Deployment with a pod on each worker, and a Service", Web)
	manifest, err := os.ReadFile(p.manifest)
	if err != nil {
		return err
	}
	if _, err := p.kubectl(ctx, string(manifest), "apply", "--filename=-"); err != nil {
		return err
	}
	if p.hosts == 1 { // the manifest wants two
		if _, err := p.kubectl(ctx, "", "scale", "deployment/web", "--replicas=1"); err != nil {
			return err
		}
	}
	p.say("waiting for deployment/web in the workload cluster")
	_, err = p.kubectl(ctx, "", "rollout", "status", "deployment/web", rollout)
	return err
}

// reachByName sends requests from each pod to the Service, by its name, until every pod has answered.
func (p proof) reachByName(ctx context.Context) error {
	hosts, err := p.pods(ctx)
	if err != nil {
		return err
	}
	for _, from := range slices.Sorted(maps.Keys(hosts)) {
		if err := p.reachAll(ctx, from, hosts); err != nil {
			return err
		}
		p.say("pod %s is answered by all %d pods", from, len(hosts))
	}
	return nil
}

// pods returns the pods of the Deployment with their Nodes.
func (p proof) pods(ctx context.Context) (hosts map[string]string, err error) {
	output, err := p.kubectl(ctx, "", "get", "pods", "--selector=app=web",
		`--output=jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`)
	if err != nil {
		return nil, err
	}
	hosts = map[string]string{}
	for line := range strings.Lines(output) {
		name, host, _ := strings.Cut(strings.TrimSpace(line), " ")
		hosts[name] = host
	}
	if len(hosts) == 0 {
		return nil, errors.New("the Deployment web has no pods")
	}
	return hosts, nil
}

func (p proof) reachAll(ctx context.Context, from string, hosts map[string]string) error {
	p.say("pod %s on %s asks %s", from, hosts[from], ServiceURL)
	missing, told := maps.Clone(hosts), ""
	for {
		answer, err := p.kubectl(ctx, "", "exec", from, "--", "/usr/bin/web", "get", ServiceURL)
		delete(missing, strings.TrimSpace(answer))
		if len(missing) == 0 {
			return nil
		}
		if left := strings.Join(slices.Sorted(maps.Keys(missing)), ", "); left != told {
			p.say("it is not answered by %s yet", left)
			told = left
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("pod %s asks %s and is not answered by %s: %w",
				from, ServiceURL, strings.Join(slices.Sorted(maps.Keys(missing)), ", "), context.Cause(ctx)), err)
		case <-time.After(p.pause):
		}
	}
}

// stream reads the logs of a pod and sends it a request through a forwarded port. The API server has to reach kubelets
// for that.
func (p proof) stream(ctx context.Context) error {
	hosts, err := p.pods(ctx)
	if err != nil {
		return err
	}
	pod := slices.Sorted(maps.Keys(hosts))[0]
	text, err := p.kubectl(ctx, "", "logs", pod)
	if err != nil {
		return err
	}
	if text == "" {
		return fmt.Errorf("the logs of pod %s are empty", pod)
	}
	p.say("kubectl logs: %s", strings.SplitN(text, "\n", 2)[0])
	answer, err := p.forward(ctx, pod)
	if err != nil {
		return fmt.Errorf("forwarding a port to pod %s: %w", pod, err)
	}
	if answer != pod {
		return fmt.Errorf("through a port forwarded to pod %s answers %q", pod, answer)
	}
	p.say("kubectl port-forward: %s answers", pod)
	return nil
}
