package addons_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/podnet"
)

// corefile has all plugins of a cluster's DNS except kubernetes, and the server that it forwards to.
const corefile = `.:53 {
    errors
    health {
        lameduck 1s
    }
    ready
    log
    prometheus :9153
    forward . 127.0.0.1:5353 {
        max_concurrent 1000
    }
    cache 30
    loop
    reload
    loadbalance
}
.:5353 {
    hosts {
        192.0.2.7 web.example.org
    }
}
`

func TestCoreDNSAnswersWhatItForwards(t *testing.T) {
	pod := podnet.NewHost(t).NewPod(t, podnet.PodOptions{})
	config := writeFile(t, filepath.Join(t.TempDir(), "Corefile"), corefile)
	ctx, cancel := context.WithCancel(t.Context())
	server := pod.CommandContext(ctx, tool(t, "coredns"), "-conf", config)
	output := &console{}
	server.Stdout, server.Stderr = output, output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = server.Wait() // killed
		if t.Failed() {
			t.Log(output)
		}
	}()

	for url, want := range map[string]string{"http://127.0.0.1:8181/ready": "OK", "http://127.0.0.1:8080/health": "OK"} {
		await(t, url, func(ctx context.Context) error { return answers(ctx, pod, url, want) })
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return pod.Dial(ctx, network, "127.0.0.1:53")
	}}
	// CoreDNS answers /ready before it listens on port 53.
	var addresses []string
	await(t, "a DNS answer", func(ctx context.Context) (err error) {
		addresses, err = resolver.LookupHost(ctx, "web.example.org.")
		return err
	})
	if diff := cmp.Diff([]string{"192.0.2.7"}, addresses); diff != "" {
		t.Error(diff)
	}
	// CoreDNS counts a request after it has answered.
	await(t, "the count of requests", func(ctx context.Context) error {
		return answers(ctx, pod, "http://127.0.0.1:9153/metrics", "coredns_dns_requests_total")
	})
}

func TestCoreDNSKnowsKubernetes(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), tool(t, "coredns"), "-plugins").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(output)), "kubernetes") {
		t.Errorf("the plugin kubernetes is not among\n%s", output)
	}
}

// answers returns an error when a request from within the pod gets another answer.
func answers(ctx context.Context, pod *podnet.Pod, url, want string) error {
	transport := &http.Transport{DialContext: pod.Dial}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
		return fmt.Errorf("%s answers %s and %.200q…, which lacks %q", url, response.Status, body, want)
	}
	return nil
}
