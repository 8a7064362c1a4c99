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
	agentTimeout = 10 * time.Second
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
	// answered says that the guest had an agent when its machine was asked to stop.
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

// follow asks the agent until it does not answer. It asks for the system repeatedly, because another one may have
// booted.
func (a *agent) follow(ctx context.Context, client *guestagent.Client) error {
	look := time.NewTicker(pingEvery)
	defer look.Stop()
	s := session{agent: a, client: client}
	for due := true; ; {
		changed := a.wait()
		if err := s.pass(ctx, due); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			due = false
		case <-look.C:
			due = true
		}
	}
}

// session is what was learned by one connection with an agent.
type session struct {
	agent  *agent
	client *guestagent.Client
	info   guestagent.OSInfo
	// cpus are the CPUs that were switched on last, and problem why the guest does not use all of them.
	cpus    int
	problem string
}

// pass asks the agent for its system, if that is due, and switches CPUs on, if there are others or some are off.
func (s *session) pass(ctx context.Context, due bool) error {
	if due {
		info, err := ask(ctx, s.client.OSInfo)
		if err != nil && !isRefusal(err) {
			return err
		}
		if !s.agent.setAnswered(true) {
			s.agent.log.Info("The guest agent answers", "system", info.PrettyName)
		}
		s.info = info
	}
	if cpus := s.agent.tuner.plugged(); cpus != s.cpus || due && s.problem != "" {
		patience := switchOnTime
		if cpus == s.cpus {
			patience = 0 // the guest had its time
		}
		var err error
		if s.problem, err = s.switchOn(ctx, cpus, patience); err != nil {
			return err
		}
		s.cpus = cpus
	}
	s.agent.note(&s.info, s.problem)
	return nil
}

// switchOn switches on the guest's CPUs, and gives the guest some time to notice all of them. It returns why the guest does
// not use all; an agent that cannot tell is none.
func (s *session) switchOn(ctx context.Context, cpus int, patience time.Duration) (problem string, err error) {
	for begun := time.Now(); ; pause(ctx, switchOnEvery) {
		online, err := ask(ctx, s.client.SwitchOn)
		refused := isRefusal(err)
		switch {
		case err != nil && !refused:
			return "", err
		case refused && online == 0 || online >= cpus:
			return "", nil
		case refused || time.Since(begun) > patience:
			return fmt.Sprintf("the guest uses %d of its %d CPUs, as its agent says", online, cpus), nil
		}
	}
}

// ask asks the agent, which has a few seconds to answer.
func ask[T any](ctx context.Context, what func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	return what(ctx)
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

// setAnswered notes whether the guest has an agent, and returns what was known before.
func (a *agent) setAnswered(yes bool) (before bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, a.answered = a.answered, yes
	return before
}

func (a *agent) note(info *guestagent.OSInfo, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := a.problem == problem && (a.info == nil) == (info == nil) && (info == nil || *a.info == *info)
	if same {
		return // telling would wake follow, which tells
	}
	a.problem, a.info = problem, nil
	if info != nil {
		a.info = new(*info)
	}
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
