package smolvmruntime

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// Values of SmolVMNode.status.backend.
const (
	backendSmolvm = "smolvm"
	// maxFeatures and maxFeature are bounds of the CRD.
	maxFeatures, maxFeature = 64, 64
)

// seen is what a status is made of.
type seen struct {
	settings *Settings
	// node is the Node; nil if there is none.
	node *corev1.Node
	// nodeUnknown says that the API server did not tell.
	nodeUnknown bool
	observation observation
	certificate string
	port        int32
	storage     int64
	now         metav1.Time
}

// statusOf returns the status of the SmolVMNode. The status before gives the times of transitions, and what is not known
// for the time being.
func statusOf(s seen, before *v1alpha1.SmolVMNodeStatus) *v1alpha1.SmolVMNodeStatus {
	status := &v1alpha1.SmolVMNodeStatus{
		NodeUID: before.NodeUID, RuntimeVersion: s.settings.Version, ProtocolVersion: v1alpha1.ProtocolVersion,
		Backend: before.Backend, Accelerator: s.observation.accelerator(), Features: before.Features, HeartbeatTime: &s.now,
		Endpoint: v1alpha1.Endpoint{
			PodName: s.settings.PodName, PodNamespace: s.settings.PodNamespace, PodIP: s.settings.PodIP, Port: s.port, Certificate: s.certificate,
		},
		Allocatable: before.Allocatable,
		Conditions:  slices.Clone(before.Conditions),
	}
	if s.node != nil {
		status.NodeUID = s.node.UID
		status.Allocatable = allocatable(s.settings, s.node, s.storage)
	}
	if s.observation.silence == "" {
		status.Backend, status.Features = backendOf(s.observation.smolvm.Backend), featuresOf(s.observation.smolvm.Features)
	}
	for _, c := range s.conditions() {
		c.LastTransitionTime = s.now
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func backendOf(told string) string {
	if told == "" || len(told) > maxFeature {
		return backendSmolvm
	}
	return told
}

// featuresOf returns features that the CRD accepts.
func featuresOf(told []string) []string {
	features := slices.DeleteFunc(slices.Clone(told), func(f string) bool { return f == "" || len(f) > maxFeature })
	slices.Sort(features)
	features = slices.Compact(features)
	return features[:min(len(features), maxFeatures)]
}

// conditions returns the conditions. Reasons, and the messages of what is healthy, are those of smolvm-operator.
func (s *seen) conditions() []metav1.Condition {
	health, message := s.observation.health(), s.observation.message(true)
	kvm := "KVM device availability observed"
	switch {
	case s.observation.silence != "":
		kvm += ": smolvm does not say"
	case s.observation.noKVM != "":
		kvm += ": " + s.observation.noKVM
	}
	obstacle := s.obstacle(health)
	schedulable := "node is schedulable for SmolVM"
	if obstacle != "" {
		schedulable = "node is not schedulable for SmolVM: " + obstacle
	}
	condition := func(kind string, holds bool, reason, message string) metav1.Condition {
		status := metav1.ConditionFalse
		if holds {
			status = metav1.ConditionTrue
		}
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	return []metav1.Condition{
		condition(v1alpha1.ConditionReady, health.OK, v1alpha1.ReasonReported, message),
		condition(v1alpha1.NodeConditionKVM, health.KVMAvailable, v1alpha1.ReasonObserved, kvm),
		condition(v1alpha1.ConditionRuntimeReady, health.SocketReady, v1alpha1.ReasonReported, message),
		condition(v1alpha1.NodeConditionSchedulable, obstacle == "", v1alpha1.ReasonReported, schedulable),
	}
}

// obstacle says why no machine may be placed here; empty if one may. A Node that cannot be read keeps what was known of it:
// the runtime has no right to say that it is bad.
func (s *seen) obstacle(h Health) string {
	switch {
	case !h.OK:
		return h.Message
	case s.node == nil && s.nodeUnknown:
		return "the Node has not been read"
	case s.node == nil:
		return fmt.Sprintf("there is no Node %s", s.settings.Node)
	case !isReady(s.node):
		return "the Node is not ready"
	}
	return ""
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// differs reports whether a status says something else than another. The time of the report and the storage are no news:
// the one always differs, and the other does whenever a file is written.
func differs(a, b *v1alpha1.SmolVMNodeStatus) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, status := range []*v1alpha1.SmolVMNodeStatus{a, b} {
		status.HeartbeatTime, status.Allocatable.StorageGiB = nil, 0
		for i := range status.Conditions {
			status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(a, b)
}
