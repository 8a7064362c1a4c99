// Package certificaterequest is the handler that approves the certificate requests of kubelets in node pods, and of no
// others.
package certificaterequest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Approver approves a request for a certificate.
type Approver interface {
	Approve(ctx context.Context, request *certificatesv1.CertificateSigningRequest, reason, message string) error
}

// Notary records on a node pod of the management cluster how its node joined.
type Notary interface {
	// AnnotatePod sets an annotation of a pod even if the pod has changed. AnnotatePodAsSeen fails when the pod has
	// changed since it was read.
	AnnotatePod(ctx context.Context, pod *corev1.Pod, name, value string) error
	AnnotatePodAsSeen(ctx context.Context, pod *corev1.Pod, name, value string) error
}

// New returns the handler. approver returns the writer for a workload cluster, or nil when there is no
// connection.
func New(n Notary, approver func(*state.Cluster) Approver) chain.Handler[*state.Cluster] {
	return handler{n, approver}
}

type handler struct {
	notary   Notary
	approver func(*state.Cluster) Approver
}

// Name is the handler's name.
func (handler) Name() string { return "certificaterequest" }

// EnsureCreated approves the requests that a node pod makes in its own name and reports every other request of a
// kubelet. It does not deny those, because the operator may see the address of a pod a moment after its kubelet sends
// the request. The API server removes undecided requests after a day.
func (h handler) EnsureCreated(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	errs := []error{h.noteJoined(ctx, s)}
	approver := h.approver(s)
	world := s.Joining()
	var refused []string
	var retry time.Time
	for i := range s.Workload.Requests {
		request := &s.Workload.Requests[i]
		switch d := joining.Decide(*request, world); {
		case d.Verdict == joining.Approve && approver != nil:
			errs = append(errs, h.approve(ctx, s, world, approver, request, d))
		case d.Verdict == joining.Wait:
			refused = append(refused, fmt.Sprintf("%s: %s", d.Reason, d.Message))
			if !d.Retry.IsZero() && (retry.IsZero() || d.Retry.Before(retry)) {
				retry = d.Retry
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return chain.Outcome{}, err
	}
	done := outcome(refused)
	if !retry.IsZero() {
		done.After = max(retry.Sub(s.Now), time.Second)
	}
	return done, nil
}

// noteJoined records on pods that their Nodes have been Ready. After that, no bootstrap token gets their identity
// again.
func (h handler) noteJoined(ctx context.Context, s *state.Cluster) error {
	var errs []error
	ready := s.Workload.ReadyNodes()
	for _, n := range s.Nodes {
		for i := range n.Pods {
			pod := &n.Pods[i]
			if record, changed := joining.Joined(pod, s.Now); ready[pod.Name] && changed {
				errs = append(errs, h.notary.AnnotatePod(ctx, pod, key.AnnotationJoining, record.Text(pod)))
			}
		}
	}
	return errors.Join(errs...)
}

// approve approves a request. If a bootstrap token was used, approve first records its key on the version of the pod
// that was judged. So an operator that stops in between, or works on old data, does not approve a second key.
func (h handler) approve(
	ctx context.Context, s *state.Cluster, w joining.World, a Approver, request *certificatesv1.CertificateSigningRequest, d joining.Decision,
) error {
	name := joining.NodeOf(*request)
	if d.Key != "" && w.Pods[name].Record.Key != d.Key {
		pod := s.NodePod(name)
		record := joining.Record{Key: d.Key, At: s.Now}
		if err := h.notary.AnnotatePodAsSeen(ctx, pod, key.AnnotationJoining, record.Text(pod)); err != nil {
			return err
		}
		w.Note(name, record)
	}
	return a.Approve(ctx, request, d.Reason, d.Message)
}

// outcome is Done although requests were refused, because a foreign request must not block a cluster. A node without a
// certificate is not Ready, which another condition reports.
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

// EnsureDeleted does nothing.
func (handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}
