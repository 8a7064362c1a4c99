package keeper

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	type verdict struct {
		Ready, Live bool
		Unready     string
	}
	for name, test := range map[string]struct {
		status  Status
		service string
		want    verdict
	}{
		"a download lives, however long it takes": {
			Status{State: StatePreparing, Step: "downloading"}, "", verdict{false, true, "the machine has not been started yet: downloading"},
		},
		"a starting QEMU lives": {
			Status{State: StateStarting, Step: "starting QEMU"}, "", verdict{false, true, "the machine has not been started yet: starting QEMU"},
		},
		"a healthy machine is ready": {Status{State: StateRunning, Answers: true, Machine: "running"}, "ok", verdict{true, true, ""}},
		"a machine without a probe is ready": {
			Status{State: StateRunning, Answers: true, Machine: "running"}, "", verdict{true, true, ""},
		},
		"a machine whose service is unhealthy lives": {
			Status{State: StateRunning, Answers: true, Machine: "running"}, "refused", verdict{false, true, "service: refused"},
		},
		"a machine that would get no address after a reboot is not ready": {
			Status{State: StateRunning, Answers: true, Machine: "running", Network: "closed"}, "ok", verdict{false, true, "network: closed"},
		},
		"a paused machine lives": {
			Status{State: StateRunning, Answers: true, Machine: "paused"}, "ok", verdict{false, true, "QEMU: paused"},
		},
		"a machine whose disk is full lives": {
			Status{State: StateRunning, Answers: true, Machine: "io-error"}, "ok", verdict{false, true, "QEMU: io-error"},
		},
		"a silent QEMU is neither": {
			Status{State: StateRunning, Machine: "context deadline exceeded"}, "", verdict{false, false, "QEMU: context deadline exceeded"},
		},
		"a held machine that is healthy is ready": {
			Status{State: StateHeld, Answers: true, Machine: "running"}, "ok", verdict{true, true, ""},
		},
		"a held machine lives, healthy or not": {
			Status{State: StateHeld, Answers: true, Machine: "running"}, "refused", verdict{false, true, "service: refused"},
		},
		"a machine that shuts down lives": {
			Status{State: StatePoweringDown, Answers: true, Machine: "running"}, "refused", verdict{false, true, "service: refused"},
		},
		"a QEMU that quits lives":     {Status{State: StateQuitting, Answers: true, Machine: "shutdown"}, "", verdict{false, true, "QEMU: shutdown"}},
		"a QEMU that is killed lives": {Status{State: StateKilling, Machine: "closed"}, "", verdict{false, true, "QEMU: closed"}},
		"a parked machine lives and is not ready": {
			Status{State: StateParked, Step: "waiting"}, "ok", verdict{false, true, "the machine is parked: waiting"},
		},
		"what has ended is neither": {Status{State: StateStopped, Answers: true, Machine: "running"}, "ok", verdict{false, false, "the machine has ended"}},
	} {
		t.Run(name, func(t *testing.T) {
			probes := []Probe{{Subject: "API server"}, {Subject: "service"}}
			got := judge(test.status, complaint(probes, []string{"", test.service}))
			if diff := cmp.Diff(test.want, verdict{got.Ready, got.Live, got.Unready}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
