package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodSettings are what the pods of clusters have in common on the management cluster: node pods, and those of Jobs with etcd's data.
type PodSettings struct {
	// PriorityClass is the name of their PriorityClass; empty for the default of the management cluster.
	PriorityClass string
	// Tolerations are those of taints of hosts that are kept for machines.
	Tolerations []corev1.Toleration
	// NodeSelector are labels that hosts need in addition to their role's.
	NodeSelector map[string]string
	// PullSecrets are the names of Secrets in the namespace of each cluster with credentials of registries.
	PullSecrets []string
	// Annotations are those of node pods in addition to the operator's own, which come first.
	Annotations map[string]string
	// ZoneSpread is how machines of one role are spread over zones.
	ZoneSpread ZoneSpread
}

// ZoneSpread is how machines of one role are spread over the zones of the management cluster (topology.kubernetes.io/zone).
type ZoneSpread string

// Values of ZoneSpread. Required has a machine wait rather than make one zone have two more than another; hosts without a zone get none.
const (
	ZoneSpreadNone      ZoneSpread = "none"
	ZoneSpreadPreferred ZoneSpread = "preferred"
	ZoneSpreadRequired  ZoneSpread = "required"
)

// taintEffects are those that a toleration may name.
var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// ParseToleration reads a toleration as kubectl writes a taint: key=value:Effect, where value, effect or both may be left out. Without a value
// every value is tolerated, without an effect every effect.
func ParseToleration(text string) (corev1.Toleration, error) {
	taint, effect, hasEffect := strings.Cut(text, ":")
	taintKey, value, hasValue := strings.Cut(taint, "=")
	toleration := corev1.Toleration{Key: taintKey, Value: value, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(effect)}
	if hasValue {
		toleration.Operator = corev1.TolerationOpEqual
	}
	problems := append(validation.IsQualifiedName(taintKey), validation.IsValidLabelValue(value)...)
	if hasEffect && !slices.Contains(taintEffects, toleration.Effect) {
		problems = append(problems, fmt.Sprintf("effect %q is none of %v", effect, taintEffects))
	}
	return toleration, refusal(problems)
}

// refusal is nil without problems.
func refusal(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// ParseLabel reads a label as key=value.
func ParseLabel(text string) (labelKey, value string, err error) {
	labelKey, value, found := strings.Cut(text, "=")
	problems := append(validation.IsQualifiedName(labelKey), validation.IsValidLabelValue(value)...)
	if !found {
		problems = append(problems, "there is no =")
	}
	return labelKey, value, refusal(problems)
}

// ParseAnnotation reads an annotation as key=value, whose value may have any text but a comma.
func ParseAnnotation(text string) (annotationKey, value string, err error) {
	annotationKey, value, found := strings.Cut(text, "=")
	problems := validation.IsQualifiedName(strings.ToLower(annotationKey))
	if !found {
		problems = append(problems, "there is no =")
	}
	return annotationKey, value, refusal(problems)
}
