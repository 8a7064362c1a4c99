package state

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// ConditionNamespace is the condition of the handler of the namespace. By it a KVMConfig records that it has created
// its namespace.
const ConditionNamespace = "NamespaceReady"

// Hold says who owns the namespace of a cluster.
type Hold string

const (
	// HoldNone means that there is no namespace, as far as is known.
	HoldNone Hold = "none"
	// HoldOwn means that it names the KVMConfig and its UID.
	HoldOwn Hold = "own"
	// HoldFormer means that it names the KVMConfig and the UID of a former one, or no UID as earlier operators wrote
	// it, and that it is proven to belong to this KVMConfig.
	HoldFormer Hold = "former"
	// HoldOffered means that it names no owner and has the label by which a namespace is handed over, like a namespace
	// whose annotation was removed.
	HoldOffered Hold = "offered"
	// HoldForeign means that it belongs to another owner. Nothing in it is trusted.
	HoldForeign Hold = "foreign"
)

// HoldOf decides who owns the namespace of a cluster. former are Secrets in the namespace of the KVMConfig that may
// prove that a namespace with another UID is its own: only those who are trusted with the cluster can write there, and
// the Secrets were created at the same time as the namespace.
func HoldOf(namespace *corev1.Namespace, config *v1alpha1.KVMConfig, former []corev1.Secret) Hold {
	own := key.OwnerKVMConfig(config, "namespace")
	switch annotations := namespace.Annotations; {
	case namespace.UID == "" && !ownership.Has(annotations):
		return HoldNone
	case own.NamesExactly(annotations):
		return HoldOwn
	case own.Names(annotations) && (remembersNamespace(config) || provenBy(former, namespace, config)):
		return HoldFormer
	case !ownership.Has(annotations) && namespace.Labels[key.LabelGSCluster] == config.Spec.Cluster.ID:
		return HoldOffered
	default:
		return HoldForeign
	}
}

// remembersNamespace returns whether the status says that the namespace was the cluster's. On deletion the condition
// shows what is waited for; then it is enough that it does not say that the namespace belongs to another owner.
func remembersNamespace(config *v1alpha1.KVMConfig) bool {
	c := meta.FindStatusCondition(config.Status.Conditions, ConditionNamespace)
	if c == nil {
		return false
	}
	// NamespaceIsOwn is the former name of InvalidNamespace, which the status may still have.
	refused := slices.Contains([]string{"NotOwned", "OwnedByOther", "InvalidNamespace", "NamespaceIsOwn"}, c.Reason)
	return c.Status == metav1.ConditionTrue || config.DeletionTimestamp != nil && !refused
}

// provenBy returns whether one of the cluster's own Secrets names the same custom resource as the namespace, including
// its UID.
func provenBy(secrets []corev1.Secret, namespace *corev1.Namespace, config *v1alpha1.KVMConfig) bool {
	of, _ := ownership.Parse(namespace.Annotations)
	return slices.ContainsFunc(secrets, func(s corev1.Secret) bool {
		owner, named := ownership.Parse(s.Annotations)
		return named && inOwnPlace(&s, config) && owner.OfCustomResource(of) && owner.UID == of.UID
	})
}

// inOwnPlace returns whether a Secret is where the operator writes those of the KVMConfig: in its namespace, with a
// name that begins with the cluster's ID.
func inOwnPlace(s *corev1.Secret, config *v1alpha1.KVMConfig) bool {
	return s.Namespace == config.Namespace && strings.HasPrefix(s.Name, key.SecretName(config.Spec.Cluster.ID, ""))
}

// Owner returns the owner of the objects of a handler.
func (s *Cluster) Owner(handler string) ownership.Owner {
	return key.OwnerKVMConfig(s.Config, handler)
}

// Places returns where the cluster's objects are: Secrets in the namespace of the KVMConfig, everything in the
// cluster's namespace unless that belongs to another owner, and cluster-scoped objects with the names that the operator
// gives.
func (s *Cluster) Places() apply.Places {
	namespaces := []string{s.Config.Namespace}
	if s.Hold != HoldForeign && s.Namespace() != s.Config.Namespace {
		namespaces = append(namespaces, s.Namespace())
	}
	return apply.Places{Namespaces: namespaces, Counts: s.counts, Former: s.FormerUIDs}
}

func (s *Cluster) counts(object client.Object) bool {
	switch object.GetNamespace() {
	case "":
		return slices.Contains([]string{key.Namespace(s.ID()), key.PSPBindingName(s.ID())}, object.GetName())
	case s.Config.Namespace:
		secret, ok := object.(*corev1.Secret)
		return ok && inOwnPlace(secret, s.Config)
	default:
		return true
	}
}

// OwnsNamespace reports whether the namespace of a cluster is the KVMConfig's.
func OwnsNamespace(config *v1alpha1.KVMConfig, hold Hold) bool {
	return hold == HoldOwn || hold == HoldFormer || hold == HoldOffered && remembersNamespace(config)
}

// LookAtNamespace records who owns the namespace.
func (s *Cluster) LookAtNamespace(namespace *corev1.Namespace, hold Hold) {
	s.Hold = hold
	s.OwnsNamespace = OwnsNamespace(s.Config, hold)
	s.NamespaceGoes = namespace.DeletionTimestamp != nil
	s.NamespaceTaken = hold != HoldNone && !s.OwnsNamespace
	if owner, _ := ownership.Parse(namespace.Annotations); hold == HoldFormer {
		s.FormerUIDs = []types.UID{owner.UID}
	}
}

// ReasonLegacyMachines is the reason of a condition which says that giantswarm/kvm-operator manages a cluster.
const ReasonLegacyMachines = "LegacyMachines"

// IsLegacyMachine returns whether giantswarm/kvm-operator created the Deployment of a node: it has that operator's
// labels, and no owner.
func IsLegacyMachine(d *appsv1.Deployment) bool {
	role := d.Labels[key.LabelApp]
	return !ownership.Has(d.Annotations) && d.Labels[key.LabelManagedBy] == key.Operator && d.Labels[key.LabelNode] != "" &&
		(role == key.RoleMaster || role == key.RoleWorker)
}

// LegacyMachines returns the error for a cluster that is not this operator's. The machines of giantswarm/kvm-operator
// keep etcd's data in a place that depends on their position in a list, and boot with data that the runner here does
// not support: if taken over, a master would start with an empty etcd.
func LegacyMachines(d *appsv1.Deployment) error {
	return problem.Newf(ReasonLegacyMachines, "Deployment %s/%s was created by giantswarm/kvm-operator; this operator does not adopt its clusters, "+
		"and does not change or delete them: let that operator keep the cluster or delete it, and create a new one for this operator "+
		"(docs/upgrading.md, \"Coming from giantswarm/kvm-operator\")", d.Namespace, d.Name)
}
