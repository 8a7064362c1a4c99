package kubevirtguest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/poll"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

const (
	// patience is how long something may take that takes seconds on a quiet machine, and a boot how long the boot of a
	// guest may take, which is a minute there.
	patience, boot = 2 * time.Minute, 8 * time.Minute
	glance         = time.Second
	answerLimit    = 64 << 10
)

// await waits until try succeeds. If it does not, it shows what is known about all objects of the namespace.
func await(t *testing.T, limit time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := poll.Until(ctx, glance, nil, try); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, explain())
	}
	t.Logf("%s after %s", what, time.Since(began).Round(time.Second))
}

// explain returns what is known about the namespace.
func explain() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var all strings.Builder
	for _, args := range [][]string{
		{"--namespace=" + namespace, "describe", "machines,vm,vmi,pvc,pods"},
		{"--namespace=" + namespace, "logs", "--selector=kubevirt.io=virt-launcher", "--all-containers", "--tail=40", "--prefix"},
		{"--namespace=" + operatorNamespace, "logs", "deployment/kubevirt-operator-controller-manager", "--tail=20"},
	} {
		output, err := cluster.Kubectl(ctx, args...)
		fmt.Fprintln(&all, output)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}

func kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	output, err := cluster.KubectlInput(t.Context(), input, append([]string{"--namespace=" + namespace}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, explain())
	}
	return output
}

// machine returns a Machine, in its current state.
func machine(ctx context.Context, name string) (*v1alpha1.Machine, error) {
	text, err := cluster.Kubectl(ctx, "--namespace="+namespace, "get", "machine", name, "--output=json")
	if err != nil {
		return nil, err
	}
	m := &v1alpha1.Machine{}
	return m, json.Unmarshal([]byte(text), m)
}

// becomes waits until a Machine has a phase and fulfills a further condition, if there is one, and returns it.
func becomes(t *testing.T, limit time.Duration, name string, phase string, further func(*v1alpha1.Machine) bool) *v1alpha1.Machine {
	t.Helper()
	var m *v1alpha1.Machine
	await(t, limit, fmt.Sprintf("Machine %s is %s", name, phase), func(ctx context.Context) (err error) {
		if m, err = machine(ctx, name); err != nil {
			return err
		}
		if m.Status.Phase != phase || further != nil && !further(m) {
			return fmt.Errorf("its status is %+v", m.Status)
		}
		return nil
	})
	return m
}

// ask returns the answer of a server in a guest, as a pod of another node would get it.
func ask(ctx context.Context, address string) (string, error) {
	transport := &http.Transport{DialContext: cluster.Dial, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, "8000")+"/boots", nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// guests returns the process ids of the emulators on the node.
func guests(t *testing.T) []string {
	t.Helper()
	// pgrep fails if there is none.
	output, err := cluster.Node(0).Exec(t.Context(), "sh", "-c", "pgrep --exact qemu-system-x86 || [ $? = 1 ]")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(output)
}

// power asks KubeVirt's subresource to stop or start a virtual machine, as virtctl does.
func power(t *testing.T, name, verb string) {
	t.Helper()
	path := "/apis/subresources.kubevirt.io/v1/namespaces/" + namespace + "/virtualmachines/" + name + "/" + verb
	kubectl(t, "{}", "replace", "--raw="+path, "--filename=-")
}
