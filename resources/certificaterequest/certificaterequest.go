// Package certificaterequest is the handler that lets the kubelets of node pods, and nobody else, have certificates.
package certificaterequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
)

// Approver approves a request for a certificate.
type Approver interface {
	Approve(ctx context.Context, request *certificatesv1.CertificateSigningRequest, reason, message string) error
}

// New makes the handler; approver finds who writes to the workload cluster of a snapshot, nil when nobody can.
func New(approver func(*cluster.Snapshot) Approver) chain.Handler[*cluster.Snapshot] {
	return handler{approver}
}

type handler struct {
	approver func(*cluster.Snapshot) Approver
}

// Name is the handler's name.
func (handler) Name() string { return "certificaterequest" }

// EnsureCreated approves what a node pod asks for in its own name and tells about every other request of a kubelet.
// Those stay undecided: the address of a pod may be seen a moment after its kubelet asks. The API server removes them
// after a day.
func (h handler) EnsureCreated(ctx context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	approver := h.approver(s)
	world := joining.NewWorld(s.NodePods(), s.Workload.ReadyNodes())
	var errs []error
	var refused []string
	for i := range s.Workload.Requests {
		request := &s.Workload.Requests[i]
		switch d := joining.Decide(*request, world); {
		case d.Verdict == joining.Approve && approver != nil:
			errs = append(errs, approver.Approve(ctx, request, d.Reason, d.Message))
		case d.Verdict == joining.Wait:
			refused = append(refused, fmt.Sprintf("%s: %s", d.Reason, d.Message))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return chain.Outcome{}, err
	}
	return outcome(refused), nil
}

// outcome is Done although requests are refused: a stranger who asks must not be able to hold a cluster up. The node that
// gets no certificate is not Ready, which is told elsewhere.
func outcome(refused []string) chain.Outcome {
	done := chain.Done()
	if len(refused) == 0 {
		return done
	}
	slices.Sort(refused)
	refused = slices.Compact(refused)
	const shown = 3
	text := strings.Join(refused[:min(shown, len(refused))], "; ")
	if more := len(refused) - shown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	done.Reason, done.Message = "RequestsNotApproved", "not approved: "+text
	return done
}

// EnsureDeleted has nothing to do.
func (handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}
