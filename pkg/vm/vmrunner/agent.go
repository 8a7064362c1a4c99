package vmrunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/guestagent"
	"github.com/kvm-operator/kvm-operator/pkg/vm/qmp"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

const (
	// lookForAgentEvery is how often the runner looks whether the guest has an agent.
	lookForAgentEvery = 3 * time.Second
	// agentTimeout bounds an answer of the agent, and pingEvery how late the runner knows that it is gone.
	agentTimeout = 5 * time.Second
	pingEvery    = 15 * time.Second
	// switchOnTime is how long a guest may take to notice a CPU that was plugged.
	switchOnTime  = 15 * time.Second
	switchOnEvery = 500 * time.Millisecond
)

// agent follows the guest agent: whether there is one, what it says, and whether the guest uses its CPUs.
type agent struct {
	path  string
	log   *slog.Logger
	tuner *tuner

	mu sync.Mutex
	// info is what the agent says; nil if none answers.
	info    *guestagent.OSInfo
	problem string
	// answered says that the guest had an agent when its machine was told to stop.
	answered bool
	*news
}

func newAgent(path string, t *tuner, log *slog.Logger, n *news) *agent {
	return &agent{path: path, tuner: t, log: log, news: n}
}

// run looks for an agent, and follows it, until the context ends.
func (a *agent) run(ctx context.Context, _ func() *qmp.Client) {
	defer a.note(nil, "")
	a.setAnswered(false)
	for ctx.Err() == nil {
		if client, err := a.dial(ctx); err == nil {
			err = a.follow(ctx, client)
			_ = client.Close()
			if ctx.Err() == nil {
				a.log.Info("The guest agent is gone", "reason", err)
				a.setAnswered(false)
				a.note(nil, "")
			}
		}
		pause(ctx, lookForAgentEvery)
	}
}

func (a *agent) dial(ctx context.Context) (*guestagent.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	return guestagent.Dial(ctx, a.path)
}

// follow asks the agent until it does not answer.
func (a *agent) follow(ctx context.Context, client *guestagent.Client) error {
	info, err := ask(ctx, client.OSInfo)
	if err != nil && !isRefusal(err) {
		return err
	}
	a.log.Info("The guest agent answers", "system", info.PrettyName)
	a.setAnswered(true)
	a.note(&info, "")
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for used := 0; ; {
		changed := a.wait()
		if cpus := a.tuner.plugged(); cpus != used {
			problem, err := a.switchOn(ctx, client, cpus)
			if err != nil {
				return err
			}
			used = cpus
			a.note(&info, problem)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-ping.C:
			if _, err := ask(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, client.Ping(ctx) }); err != nil {
				return err
			}
		}
	}
}

// ask asks the agent, which has a few seconds to answer.
func ask[T any](ctx context.Context, what func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	return what(ctx)
}

// switchOn switches on the guest's CPUs, and waits until the guest has noticed all of them. It returns why the guest does
// not use all; an agent that cannot tell is none.
func (a *agent) switchOn(ctx context.Context, client *guestagent.Client, cpus int) (problem string, err error) {
	ctx, cancel := context.WithTimeout(ctx, switchOnTime)
	defer cancel()
	for {
		online, err := ask(ctx, client.SwitchOn)
		switch {
		case isRefusal(err) && online == 0:
			return "", nil
		case err != nil && !isRefusal(err):
			return "", err
		case online >= cpus:
			return "", nil
		}
		pause(ctx, switchOnEvery)
		if err != nil || ctx.Err() != nil {
			return fmt.Sprintf("the guest uses %d of its %d CPUs, as its agent says", online, cpus), nil
		}
	}
}

func isRefusal(err error) bool {
	var refusal *guestagent.Refusal
	return errors.As(err, &refusal)
}

// shutDown asks the guest to shut down, and returns whether it was asked. It is called after run has ended.
func (a *agent) shutDown(ctx context.Context) bool {
	a.mu.Lock()
	answered := a.answered
	a.mu.Unlock()
	if !answered {
		return false
	}
	client, err := a.dial(ctx)
	if err != nil {
		return false
	}
	err = errors.Join(client.Shutdown(ctx), client.Close())
	return err == nil
}

func (a *agent) setAnswered(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered = yes
}

func (a *agent) note(info *guestagent.OSInfo, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.info, a.problem = info, problem
	a.tell()
}

// report adds what is known to a report.
func (a *agent) report(r *vmconfig.Report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.OS = a.info
	if r.Problems[vmconfig.PartCPUs] == "" {
		r.AddProblem(vmconfig.PartCPUs, a.problem)
	}
}
