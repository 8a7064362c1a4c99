package smolvmruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

const (
	// fieldOwner owns the fields of the SmolVMNode that the agent applies. Labels that others set stay.
	fieldOwner = "smolvm-runtime"
	// requestTime bounds a request to the API server.
	requestTime = 10 * time.Second
	// firstRetry and lastRetry bound the time until a report that failed is repeated. It doubles with each failure.
	firstRetry, lastRetry = time.Second, time.Minute
)

// reporter writes the SmolVMNode of this node, and nothing else. At rest it writes once an interval and reads nothing.
type reporter struct {
	client   client.Client
	name     string
	interval time.Duration

	// begun is set when the SmolVMNode has been read, which happens once.
	begun bool
	// labels and status are what was written last; nil if that is not known.
	labels map[string]string
	status *v1alpha1.SmolVMNodeStatus
	at     time.Time
	// retry is how long to wait after a failure, which was at failedAt.
	retry    time.Duration
	failedAt time.Time
}

// previous returns the status that the next one is based on.
func (r *reporter) previous() *v1alpha1.SmolVMNodeStatus {
	if r.status == nil {
		return &v1alpha1.SmolVMNodeStatus{}
	}
	return r.status
}

// Begin reads what an agent before this one has reported, so that conditions keep their times.
func (r *reporter) Begin(ctx context.Context) error {
	if r.begun {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	node := &v1alpha1.SmolVMNode{}
	err := r.client.Get(ctx, client.ObjectKey{Name: r.name}, node)
	switch {
	case err == nil:
		r.status = &node.Status
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading SmolVMNode %s: %w", r.name, err)
	}
	r.begun = true
	return nil
}

// Due reports whether a status and labels are to be written now. Labels are nil if those of the Node are not known: then
// those that the SmolVMNode has stay.
func (r *reporter) Due(labels map[string]string, status *v1alpha1.SmolVMNodeStatus, now time.Time) bool {
	if r.retry > 0 && now.Sub(r.failedAt) < r.retry {
		return false
	}
	return r.at.IsZero() || r.retry > 0 || now.Sub(r.at) >= r.interval || r.relabels(labels) || differs(status, r.previous())
}

// relabels reports whether labels are known that have not been written.
func (r *reporter) relabels(labels map[string]string) bool {
	return labels != nil && (r.labels == nil || !maps.Equal(labels, r.labels))
}

// Report writes labels if they have changed, and a status. An object that is missing is made.
func (r *reporter) Report(ctx context.Context, labels map[string]string, status *v1alpha1.SmolVMNodeStatus, now time.Time) error {
	err := r.write(ctx, labels, status)
	if err != nil {
		r.failedAt = now
		r.retry = min(max(2*r.retry, firstRetry), lastRetry)
		return err
	}
	r.retry, r.at, r.status = 0, now, status
	return nil
}

func (r *reporter) write(ctx context.Context, labels map[string]string, status *v1alpha1.SmolVMNodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if r.relabels(labels) {
		if err := r.applyObject(ctx, labels); err != nil {
			return err
		}
	}
	err := r.applyStatus(ctx, status)
	if !apierrors.IsNotFound(err) {
		return err
	}
	// It was deleted meanwhile.
	if err := r.applyObject(ctx, labels); err != nil {
		return err
	}
	return r.applyStatus(ctx, status)
}

// request is what is applied.
type request struct {
	metav1.TypeMeta `json:",inline"`

	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Status *v1alpha1.SmolVMNodeStatus `json:"status,omitempty"`
}

func (r *reporter) request() request {
	made := request{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SmolVMNode"}}
	made.Metadata.Name = r.name
	return made
}

// applyObject makes the SmolVMNode, or gives it labels.
func (r *reporter) applyObject(ctx context.Context, labels map[string]string) error {
	wanted := r.request()
	wanted.Metadata.Labels = labels
	text, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("encoding SmolVMNode %s: %w", r.name, err)
	}
	object := &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	if err := r.client.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, text), client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying SmolVMNode %s: %w", r.name, err)
	}
	r.labels = maps.Clone(labels)
	return nil
}

func (r *reporter) applyStatus(ctx context.Context, status *v1alpha1.SmolVMNodeStatus) error {
	wanted := r.request()
	wanted.Status = status
	text, err := json.Marshal(wanted)
	if err != nil {
		return fmt.Errorf("encoding the status of SmolVMNode %s: %w", r.name, err)
	}
	object := &v1alpha1.SmolVMNode{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	options := &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{FieldManager: fieldOwner, Force: new(true)}}
	if err := r.client.Status().Patch(ctx, object, client.RawPatch(types.ApplyPatchType, text), options); err != nil {
		return fmt.Errorf("applying the status of SmolVMNode %s: %w", r.name, err)
	}
	return nil
}
