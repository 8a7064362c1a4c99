package vitistack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// report adds a problem, unless it is known already.
func (p *plan) report(kind, format string, args ...any) {
	p.reportNetwork("", kind, format, args...)
}

// reportNetwork adds a problem with a NetworkConfiguration.
func (p *plan) reportNetwork(network, kind, format string, args ...any) {
	found := Problem{Type: kind, Message: fmt.Sprintf(format, args...), Network: network}
	if !slices.Contains(p.problems, found) {
		p.problems = append(p.problems, found)
	}
}

// inOrder sorts problems by the order of v1alpha1.ErrorTypes. Problems of one type stay in the order in which they were found.
func inOrder(problems []Problem) []Problem {
	order := v1alpha1.ErrorTypes()
	slices.SortStableFunc(problems, func(a, b Problem) int { return slices.Index(order, a.Type) - slices.Index(order, b.Type) })
	return problems
}

// Refusal is why nothing is created or changed for the Machine: its first problem, with the messages of all. It is nil if
// there is no problem.
func (s *State) Refusal() error { return refusal(s.Problems) }

// NetworkRefusal is the same for the problems with networks.
func (s *State) NetworkRefusal() error {
	return refusal(slices.DeleteFunc(slices.Clone(s.Problems), func(p Problem) bool {
		return p.Type != v1alpha1.NetworkConfigurationNotFound && p.Type != v1alpha1.NetworkAttachmentFailed
	}))
}

func refusal(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	var messages []string
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return problem.Newf(problems[0].Type, "%s", strings.Join(messages, "; "))
}
