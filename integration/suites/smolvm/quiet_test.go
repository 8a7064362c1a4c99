package smolvm_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmruntime"
)

var quiet = flag.Duration("quiet", 0, "for how `long` nothing happens to quiet SmolVMs; 0 for half a minute in the test and ten minutes in the benchmark")

// quietNodes is how many nodes the quiet SmolVMs have.
const quietNodes = 5

// BenchmarkQuietSmolVMs counts requests while nothing happens to 100 SmolVMs. The controller and the agents of the nodes are
// real; smolvm is played.
func BenchmarkQuietSmolVMs(b *testing.B) {
	measureQuiet(b, 100, cmp.Or(*quiet, 10*time.Minute), smolvmruntime.DefaultReportInterval)
}

// TestQuietInSmall keeps that benchmark working, with nodes that report more often.
func TestQuietInSmall(t *testing.T) {
	measureQuiet(t, 20, cmp.Or(*quiet, 30*time.Second), 10*time.Second)
}

func measureQuiet(b testing.TB, machines int, window, interval time.Duration) {
	b.Helper()
	owner := daemonSet(b)
	var agents []*agentNode
	for i := range quietNodes {
		agents = append(agents, agentOf(b, fmt.Sprintf("n%d", i), owner, int32(machines/quietNodes), interval))
	}
	operator := theLab.Run(b, withUsualTimes)
	prefix := label(b) + "-vm-"
	b.Cleanup(func() { letAllGo(prefix) })
	awaitRunning := watchRunning(b, prefix)
	for i := range machines {
		theLab.Create(b, oneOfMany(b, prefix, i, machines)) // each has its own port: they fill the nodes
	}
	awaitRunning(machines, func() {})
	awaitRest(b, operator)

	for _, n := range agents {
		n.requests.Reset()
		n.asked.Store(0)
	}
	operator.Requests.Reset()
	time.Sleep(window)
	all, watches := operator.Requests.All(), operator.Requests.Watches()
	if len(all) > 0 {
		b.Errorf("the controller made %d requests: %v", len(all), all)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%d SmolVMs, %s\twrites\twrites a minute\treads\tquestions about machines\t\n", machines, window)
	fmt.Fprintf(w, "controller\t%d\t\t%d\t\t\n", len(operator.Requests.Writes()), len(operator.Requests.Reads()))
	for _, n := range agents {
		checkReports(b, n, window, interval)
		writes := len(n.requests.Writes())
		fmt.Fprintf(w, "agent %s\t%d\t%.2f\t%d\t%d\t\n", n.name, writes, float64(writes)/window.Minutes(), len(n.requests.Reads()), n.asked.Load())
	}
	if err := w.Flush(); err != nil {
		b.Error(err)
	}
	fmt.Printf("the controller renewed %d watches\n", watches)
	awaitCare(b, agents[0])
}

// checkReports bounds what an agent writes. One report more than intervals fits into a time if it begins with one.
func checkReports(b testing.TB, n *agentNode, window, interval time.Duration) {
	b.Helper()
	// The agent looks every five seconds whether a report is due.
	most, least := int(window/interval)+1, int(window/(interval+6*time.Second))
	writes := n.requests.Writes()
	if len(writes) > most || len(writes) < least {
		b.Errorf("agent %s made %d writes in %s, want %d to %d: %v", n.name, len(writes), window, least, most, writes)
	}
	for _, write := range writes {
		if !strings.HasSuffix(write.Path, "/smolvmnodes/"+n.name+"/status") {
			b.Errorf("agent %s made another write: %s", n.name, write)
		}
	}
}

// awaitCare stops a machine at its node, and waits until the controller has started it again: it was quiet, and not asleep.
func awaitCare(b testing.TB, n *agentNode) {
	b.Helper()
	machines, _ := n.List(b.Context()) // it never fails
	if len(machines) == 0 {
		b.Fatalf("node %s has no machine", n.name)
	}
	name := machines[0].Name
	n.change(name, func(m *api.Machine) { m.State = api.StateStopped })
	lab.Eventually(b, patience, func() error {
		if n.count("start", name) != 2 {
			return errors.New("the machine is not started again")
		}
		return nil
	})
}

// agentNode is a node with a real agent, and with a smolvm that is played.
type agentNode struct {
	*fakeRuntime

	name string
	// requests are those of the agent to the API server.
	requests *lab.Recorder
	// asked counts the requests to smolvm that are about machines.
	asked atomic.Int64
}

// daemonSet makes the DaemonSet that agents look for, and returns its name.
func daemonSet(b testing.TB) string {
	b.Helper()
	c, err := smolvmruntime.NewClient(theLab.RESTConfig())
	if err != nil {
		b.Fatal(err)
	}
	labels := map[string]string{"app": label(b)}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: label(b)}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "runtime", Image: "runtime"}}
	if err := c.Create(b.Context(), set); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Delete(context.Background(), set) })
	return set.Name
}

// agentOf runs the agent of a node until the end of the test. The node has room for some machines of one processor each.
func agentOf(b testing.TB, name, owner string, machines int32, interval time.Duration) *agentNode {
	b.Helper()
	n := &agentNode{fakeRuntime: newFakeRuntime(), name: label(b) + "-" + name, requests: &lab.Recorder{}}
	addHost(b, n.name)
	settings := smolvmruntime.Settings{
		Node: n.name, PodName: n.name, PodNamespace: metav1.NamespaceDefault, PodIP: "127.0.0.1", DaemonSet: owner, Version: "1", BindAddress: "127.0.0.1:0",
		Socket: filepath.Join(b.TempDir(), "socket"), State: b.TempDir(), Token: token, AllowEmulation: true, CapacityCPUs: machines, CapacityMemoryMiB: int64(machines) * 512,
		ReportInterval: interval, Orphans: smolvmruntime.DefaultOrphans,
	}
	if err := settings.Validate(); err != nil {
		b.Fatal(err)
	}
	n.serveSmolvm(b, settings.Socket)
	config := theLab.RESTConfig()
	config.Wrap(n.requests.Transport)
	c, err := smolvmruntime.NewClient(config)
	if err != nil {
		b.Fatal(err)
	}
	agent, err := smolvmruntime.New(settings, roomy{c}, io.Discard, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("agent %s: %v", n.name, err)
		}
		_ = theLab.Client.Delete(context.Background(), &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: n.name}})
	})
	return n
}

// serveSmolvm serves the played machines on a socket, as smolvm does.
func (n *agentNode) serveSmolvm(b testing.TB, socket string) {
	b.Helper()
	listener, err := server.Listen(b.Context(), "unix://"+socket, false)
	if err != nil {
		b.Fatal(err)
	}
	machines := server.New(server.Options{Machines: n, Log: slog.New(slog.DiscardHandler), Version: "fake"})
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/machines") {
			n.asked.Add(1)
		}
		machines.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener, counted) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("smolvm of %s: %v", n.name, err)
		}
	})
}

// roomy is a client that says of a node that it has a large disk, whatever the disk of this machine has left.
type roomy struct{ client.Client }

func (r roomy) Status() client.SubResourceWriter { return roomyStatus{r.Client.Status()} }

type roomyStatus struct{ client.SubResourceWriter }

var storage = regexp.MustCompile(`"storageGiB":\d+`)

func (s roomyStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	text, err := patch.Data(object)
	if err != nil {
		return err
	}
	return s.SubResourceWriter.Patch(ctx, object, client.RawPatch(patch.Type(), storage.ReplaceAll(text, []byte(`"storageGiB":400`))), options...)
}
