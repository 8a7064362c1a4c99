package realcluster_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {role: worker}
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: ` + busyboxImage + `
        command: [sh, -c, "mkdir /www; hostname >/www/index.html; echo serving; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tools}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: tools
    image: ` + busyboxImage + `
    command: [sleep, "3600"]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: scratch, mountPath: /scratch}
    - {name: state, mountPath: /state}
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: state, hostPath: {path: /var/lib/kvm-operator-test, type: DirectoryOrCreate}}
`

func TestPodsAreReal(t *testing.T) {
	c := theCluster(t)
	apply(t, c, "pods", web)
	kubectl(t, c, "--namespace=pods", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	pod := kubectl(t, c, "--namespace=pods", "get", "pod", "--selector=app=web", "--output=jsonpath={.items[0].metadata.name}")
	podIP := kubectl(t, c, "--namespace=pods", "get", "pod", pod, "--output=jsonpath={.status.podIP}")
	service := kubectl(t, c, "--namespace=pods", "get", "service", "web", "--output=jsonpath={.spec.clusterIP}")

	if logs := kubectl(t, c, "--namespace=pods", "logs", pod); logs != "serving" {
		t.Errorf("the log is %q", logs)
	}
	for name, test := range map[string]struct {
		dial    dialer
		address string
	}{
		"the pod from the node":             {c.Node(0).Dial, podIP + ":8080"},
		"the pod from the control plane":    {c.Dial, podIP + ":8080"},
		"the Service from the node":         {c.Node(0).Dial, service + ":80"},
		"the Service by its name":           {c.Node(0).Dial, "web.pods.svc." + realcluster.Domain + ":80"},
		"the Service by a forward":          {new(net.Dialer).DialContext, forwarded(t, func() (string, error) { return c.Node(0).Forward(t.Context(), service+":80") })},
		"the pod by a forward of kubectl's": {c.Dial, portForwarded(t, "pods", pod)},
	} {
		t.Run(name, func(t *testing.T) {
			await(t, 10*time.Second, func() error {
				answer, err := ask(t.Context(), test.dial, test.address, "/")
				if err == nil && !strings.Contains(answer, pod) {
					err = fmt.Errorf("the answer is %q", answer)
				}
				return err
			})
		})
	}
	for name, test := range map[string]struct{ script, want string }{
		"a Service by its name":                           {`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 web.pods.svc.cluster.local 80`, pod},
		"a Service by its short name and a search domain": {`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 web 80`, pod},
		"the API server by its name":                      {`echo | nc -w 5 kubernetes.default.svc 443 && echo open`, "open"},
		"an emptyDir":                                     {`echo kept >/scratch/file && cat /scratch/file`, "kept"},
		"a hostPath":                                      {`echo kept >/state/file && cat /state/file`, "kept"},
		"a tap device":                                    {`mkdir -p /dev/net; [ -c /dev/net/tun ] || mknod /dev/net/tun c 10 200; tunctl -t tap9 && ip link show tap9`, "tap9"},
		"nothing outside":                                 {`ping -c 1 -W 1 192.0.2.1 || echo unreachable`, "unreachable"},
	} {
		t.Run("a pod has "+name, func(t *testing.T) {
			got := kubectl(t, c, "--namespace=pods", "exec", "tools", "--", "sh", "-c", test.script)
			if !strings.Contains(got, test.want) {
				t.Errorf("%s: %q does not contain %q", test.script, got, test.want)
			}
		})
	}
	if got, err := c.Node(0).Exec(t.Context(), "cat", "/var/lib/kvm-operator-test/file"); err != nil || got != "kept\n" {
		t.Errorf("on the node the hostPath has %q (%v)", got, err)
	}
	if got, err := c.Node(0).Exec(t.Context(), "getent", "hosts", "web.pods.svc."+realcluster.Domain); err != nil || !strings.HasPrefix(got, service) {
		t.Errorf("on the node the name of the Service leads to %q (%v)", got, err)
	}
	if output, err := exec.Command("ls", "/var/lib/kvm-operator-test").CombinedOutput(); err == nil {
		t.Errorf("the hostPath is on this machine, too: %s", output)
	}
}

func forwarded(t *testing.T, forward func() (string, error)) string {
	t.Helper()
	local, err := forward()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(local, "127.0.0.1:") {
		t.Errorf("forwarded is %s", local)
	}
	return local
}

// portForwarded forwards a port of the control plane's network to port 8080 of a pod, until the test ends.
func portForwarded(t *testing.T, namespace, pod string) string {
	t.Helper()
	c := theCluster(t)
	command := c.KubectlCommand(t.Context(), "--namespace="+namespace, "port-forward", "pod/"+pod, "18080:8080")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(command) // ends when the test kills it
	}()
	t.Cleanup(func() { <-done })
	return "127.0.0.1:18080"
}

func TestKubeconfigWorksFromThisMachine(t *testing.T) {
	c := theCluster(t)
	kubeconfig, err := c.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), tools+"/kubectl", "--kubeconfig="+kubeconfig, "get", "nodes", "--selector=role=worker", "--output=name").CombinedOutput()
	if err != nil || strings.TrimSpace(string(output)) != "node/node-1" {
		t.Errorf("kubectl get nodes: %s (%v)", output, err)
	}
}
