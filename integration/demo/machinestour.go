package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

const (
	// samples is the directory of the manifests, and team the namespace that they are applied in. It is none of
	// docs/machines.md, whose commands users may try.
	samples = "config/samples"
	team    = "team-a"
	// shown is the Machine that is stopped, started and deleted. The others stay.
	shown = "small"
	// logLines is how many lines of the operator's log are shown.
	logLines = 6
	// metricsLimit is how much of the operator's metrics is read.
	metricsLimit = 1 << 20
)

// appliedSamples are the manifests of the demo. Together they have Machines with and without claims and networks.
var appliedSamples = []string{"networkconfiguration.yaml", "machine_small.yaml", "machine_boot.yaml", "machine_database.yaml"}

// debugging are the commands for the shown Machine, which docs/machines.md has for all.
var debugging = []struct{ question, command string }{
	{"what is there?", "kubectl get machines -A"},
	{"which objects does it have?", "kubectl get vm,vmi,pvc -l vitistack.io/machine=" + shown},
	{"which networks are there?", "kubectl get networkconfigurations"},
	{"and what did Multus get?", "kubectl get network-attachment-definitions"},
	{"why is it not ready? Its conditions and events", "kubectl describe machine " + shown},
}

// errNever keeps following until the context ends.
var errNever = errors.New("the demo is kept")

// tour are the steps that show Machines.
func (d *machinesDemo) tour() []step {
	return []step{
		{"applying two networks and three Machines", d.apply},
		{"waiting until all Machines are Running", d.untilRunning},
		{"looking at them, with the commands of docs/machines.md", d.look},
		{"the end of the operator's log, and metrics", d.tellOperator},
		{"stopping " + shown + " by KubeVirt's subresource, as `virtctl stop` does: the operator does not start it again", d.halt},
		{"starting it", d.resume},
		{"deleting it: the guest goes, then its disk", d.remove},
	}
}

func (d *machinesDemo) apply(ctx context.Context) error {
	if err := d.kubectl(ctx, "", "create", "namespace", team); err != nil {
		return err
	}
	arguments := []string{"apply"}
	for _, name := range appliedSamples {
		arguments = append(arguments, "-f", samples+"/"+name)
	}
	return d.kubectl(ctx, "", arguments...)
}

func (d *machinesDemo) look(ctx context.Context) error {
	for _, c := range debugging {
		d.print("    # " + c.question + "\n")
		if err := d.kubectl(ctx, "", strings.Fields(c.command)[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// tellOperator prints what the operator says of itself. Its log is a file, because its pod does not exist.
func (d *machinesDemo) tellOperator(ctx context.Context) error {
	end, err := process.Tail(d.operatorLog(), logLines)
	if err != nil {
		return err
	}
	d.printCommand("tail", fmt.Sprintf("-n%d", logLines), d.relative(d.operatorLog()))
	d.print(end + "\n")
	text, err := scrape(ctx, "http://"+d.address+"/metrics")
	if err != nil {
		return err
	}
	d.printCommand("curl", "-s", "http://"+d.address+"/metrics", "|", "grep", "^kubevirt_operator", "|", "grep", "-v", "-e", "_bucket", "-e", "' 0$'")
	d.print(indented(interesting(text)))
	return nil
}

func scrape(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, metricsLimit))
	return string(text), err
}

// interesting returns the metrics of the operator that are no buckets of a histogram and not zero.
func interesting(metrics string) string {
	var lines []string
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "kubevirt_operator") && !strings.Contains(line, "_bucket") && !strings.HasSuffix(line, " 0\n") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func (d *machinesDemo) halt(ctx context.Context) error {
	if err := d.subresource(ctx, "stop"); err != nil {
		return err
	}
	return d.await(ctx, inPhase(v1alpha1.PhaseStopped, shown))
}

func (d *machinesDemo) resume(ctx context.Context) error {
	if err := d.subresource(ctx, "start"); err != nil {
		return err
	}
	return d.await(ctx, inPhase(v1alpha1.PhaseRunning, shown))
}

// subresource asks KubeVirt to do something with the shown Machine.
func (d *machinesDemo) subresource(ctx context.Context, action string) error {
	return d.kubectl(ctx, "{}", "replace", "--raw", subresourcePath(shown, action), "-f", "-")
}

func subresourcePath(machine, action string) string {
	return "/apis/subresources.kubevirt.io/v1/namespaces/" + team + "/virtualmachines/" + machine + "/" + action
}

func (d *machinesDemo) remove(ctx context.Context) error {
	if err := d.kubectl(ctx, "", "delete", "machine", shown); err != nil {
		return err
	}
	if err := d.await(ctx, isGone(shown)); err != nil {
		return err
	}
	return d.kubectl(ctx, "", "get", "machines,vm,pvc")
}

func (d *machinesDemo) untilRunning(ctx context.Context) error {
	return d.await(ctx, func(all machines) error {
		if len(all) == 0 {
			return errors.New("there is no Machine")
		}
		return inPhase(v1alpha1.PhaseRunning, slices.Sorted(maps.Keys(all))...)(all)
	})
}

// machines are the Machines of the demo by name.
type machines map[string]v1alpha1.Machine

// inPhase returns a condition for await: Machines of the names are in a phase, and Ready if that is Running.
func inPhase(phase string, names ...string) func(machines) error {
	return func(all machines) error {
		for _, name := range names {
			m, exists := all[name]
			if !exists {
				return fmt.Errorf("there is no Machine %s", name)
			}
			if m.Status.Phase != phase || phase == v1alpha1.PhaseRunning && !isReady(m) {
				return fmt.Errorf("%s is %s", name, fact(m))
			}
		}
		return nil
	}
}

// isGone returns a condition for await: there is no Machine of the name.
func isGone(name string) func(machines) error {
	return func(all machines) error {
		if m, exists := all[name]; exists {
			return fmt.Errorf("%s is %s", name, fact(m))
		}
		return nil
	}
}

func isReady(m v1alpha1.Machine) bool {
	ready := readyOf(m)
	return ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == m.Generation
}

// readyOf returns the condition Ready, empty if there is none.
func readyOf(m v1alpha1.Machine) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady), metav1.Condition{})
}

// fact says how a Machine is, in one line.
func fact(m v1alpha1.Machine) string {
	ready := readyOf(m)
	text := cmp.Or(m.Status.Phase, "new")
	if isReady(m) {
		addresses := cmp.Or(strings.Join(m.Status.IPAddresses, ", "), "no address yet")
		_, waits, _ := strings.Cut(ready.Message, ";") // after what is the case comes what waits for the next start
		text = fmt.Sprintf("%s on %s, %s", text, m.Status.NodeName, addresses)
		return strings.TrimSuffix(text+";"+waits, ";")
	}
	if ready.Reason != "" && ready.Reason != text {
		text += ", " + ready.Reason
	}
	if ready.Message != "" {
		text += ": " + ready.Message
	}
	return text
}

// await prints what changes of Machines until a condition returns no error.
func (d *machinesDemo) await(ctx context.Context, condition func(machines) error) error {
	ticker := time.NewTicker(observeInterval / 4)
	defer ticker.Stop()
	for {
		err := d.observeMachines(ctx, condition)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-d.operator.Done():
			return d.operator.Failure()
		case <-ticker.C:
		}
	}
}

func (d *machinesDemo) observeMachines(ctx context.Context, condition func(machines) error) error {
	list := &v1alpha1.MachineList{}
	if err := d.client.List(ctx, list, client.InNamespace(team)); err != nil {
		return err
	}
	all := machines{}
	for _, m := range list.Items {
		all[m.Name] = m
	}
	for _, line := range d.changes(all) {
		d.say("  %s", line)
	}
	return condition(all)
}

// changes describes how Machines differ from the last ones.
func (d *machinesDemo) changes(all machines) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if now := fact(all[name]); d.seen[name] != now {
			lines = append(lines, name+": "+now)
			d.seen[name] = now
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.seen)) {
		if _, exists := all[name]; !exists {
			lines = append(lines, name+": gone")
			delete(d.seen, name)
		}
	}
	return lines
}

// kubectl runs a command with a text as its input, and prints it as a terminal does.
func (d *machinesDemo) kubectl(ctx context.Context, input string, arguments ...string) error {
	if input == "" {
		d.printCommand("kubectl", arguments...)
	} else {
		d.printCommand("echo", append([]string{"'" + input + "'", "|", "kubectl"}, arguments...)...)
	}
	command := exec.CommandContext(ctx, d.tool("kubectl"), arguments...)
	command.Dir, command.Env, command.Stdin = d.state.root, append(os.Environ(), "KUBECONFIG="+d.state.management()), strings.NewReader(input)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	d.print(indented(output.String()))
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, output.String())
	}
	return nil
}

func (d *machinesDemo) printCommand(name string, arguments ...string) {
	d.print("    $ " + strings.Join(append([]string{name}, arguments...), " ") + "\n")
}

// indented returns lines as they are printed below a line of progress.
func indented(text string) string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}
