package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// PodSettings are what the pods of clusters on the management cluster have in common: node pods and the pods of Jobs
// with etcd's data.
type PodSettings struct {
	// PriorityClass is the name of their PriorityClass; empty means the default of the management cluster.
	PriorityClass string
	// Tolerations are for taints of hosts that are reserved for machines.
	Tolerations []corev1.Toleration
	// NodeSelector are labels that hosts need in addition to their role's.
	NodeSelector map[string]string
	// PullSecrets are the names of Secrets in the namespace of each cluster with credentials of registries.
	PullSecrets []string
	// Annotations are added to node pods; the operator's own take precedence.
	Annotations map[string]string
	// ZoneSpread is how machines of one role are spread over zones.
	ZoneSpread ZoneSpread
}

// ZoneSpread is how machines of one role are spread over the zones of the management cluster
// (topology.kubernetes.io/zone).
type ZoneSpread string

// Values of ZoneSpread. With Required, a machine waits if its zone would have two machines more than another zone;
// hosts without a zone get none.
const (
	ZoneSpreadNone      ZoneSpread = "none"
	ZoneSpreadPreferred ZoneSpread = "preferred"
	ZoneSpreadRequired  ZoneSpread = "required"
)

// taintEffects are the effects that a toleration may name.
var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// ParseToleration parses a toleration in the form in which kubectl writes a taint: key=value:Effect. Value, effect or
// both may be omitted. Without a value every value is tolerated, and without an effect every effect.
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

// refusal returns an error with the problems; nil if there are none.
func refusal(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// ParseLabel parses a label of the form key=value.
func ParseLabel(text string) (labelKey, value string, err error) {
	labelKey, value, found := strings.Cut(text, "=")
	problems := append(validation.IsQualifiedName(labelKey), validation.IsValidLabelValue(value)...)
	if !found {
		problems = append(problems, "there is no =")
	}
	return labelKey, value, refusal(problems)
}

// ParseAnnotation parses an annotation of the form key=value. The value may have any text without a comma.
func ParseAnnotation(text string) (annotationKey, value string, err error) {
	annotationKey, value, found := strings.Cut(text, "=")
	problems := validation.IsQualifiedName(strings.ToLower(annotationKey))
	if !found {
		problems = append(problems, "there is no =")
	}
	return annotationKey, value, refusal(problems)
}
