package cluster

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
	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// ConditionNamespace is the condition of the handler of the namespace, by which a KVMConfig remembers that it has made its namespace.
const ConditionNamespace = "NamespaceReady"

// Hold says whose the namespace of a cluster is.
type Hold string

const (
	// HoldNone says: there is no namespace, as far as is known.
	HoldNone Hold = "none"
	// HoldOwn says: it names the KVMConfig and its UID.
	HoldOwn Hold = "own"
	// HoldFormer says: it names the KVMConfig and the UID of a former one, or none as earlier operators wrote it, and it is proven that what it
	// holds is this KVMConfig's.
	HoldFormer Hold = "former"
	// HoldOffered says: it names nobody, and has the label by which a namespace is handed over, as one has whose annotation was removed.
	HoldOffered Hold = "offered"
	// HoldForeign says: it is somebody else's. Nothing that lies in it is believed.
	HoldForeign Hold = "foreign"
)

// HoldOf decides whose the namespace of a cluster is. former are Secrets beside the KVMConfig that may prove that a namespace of another UID
// is its own: they lie where only those write who are trusted with the cluster, and were made when the namespace was.
func HoldOf(namespace *corev1.Namespace, config *v1alpha1.KVMConfig, former []corev1.Secret) Hold {
	own := key.OwnerKVMConfig(config, "namespace")
	switch annotations := namespace.Annotations; {
	case namespace.UID == "" && !key.HasOwner(annotations):
		return HoldNone
	case own.NamesExactly(annotations):
		return HoldOwn
	case own.Names(annotations) && (remembersNamespace(config) || provenBy(former, namespace, config)):
		return HoldFormer
	case !key.HasOwner(annotations) && namespace.Labels[key.LabelGSCluster] == config.Spec.Cluster.ID:
		return HoldOffered
	default:
		return HoldForeign
	}
}

// remembersNamespace says that the status tells that the namespace was the cluster's. On deletion its condition tells what is waited for;
// then it is enough that it does not say that the namespace is somebody else's.
func remembersNamespace(config *v1alpha1.KVMConfig) bool {
	c := meta.FindStatusCondition(config.Status.Conditions, ConditionNamespace)
	if c == nil {
		return false
	}
	refused := slices.Contains([]string{"NotOwned", "OwnedByOther", "NamespaceIsOwn"}, c.Reason)
	return c.Status == metav1.ConditionTrue || config.DeletionTimestamp != nil && !refused
}

// provenBy says that one of the cluster's own Secrets names the same custom resource as the namespace, UID included.
func provenBy(secrets []corev1.Secret, namespace *corev1.Namespace, config *v1alpha1.KVMConfig) bool {
	of, _ := key.ParseOwner(namespace.Annotations)
	return slices.ContainsFunc(secrets, func(s corev1.Secret) bool {
		owner, named := key.ParseOwner(s.Annotations)
		return named && inOwnPlace(&s, config) && owner.OfCustomResource(of) && owner.UID == of.UID
	})
}

// inOwnPlace says that a Secret lies where the operator writes those of the KVMConfig: beside it, under a name that begins with the cluster's id.
func inOwnPlace(s *corev1.Secret, config *v1alpha1.KVMConfig) bool {
	return s.Namespace == config.Namespace && strings.HasPrefix(s.Name, key.SecretName(config.Spec.Cluster.ID, ""))
}

// Owner is the owner of the objects of a handler.
func (s *Snapshot) Owner(handler string) key.Owner { return key.OwnerKVMConfig(s.Config, handler) }

// Places are where the cluster's objects lie: Secrets beside the KVMConfig, everything in the cluster's namespace unless that is somebody
// else's, and what has no namespace under the names that the operator gives.
func (s *Snapshot) Places() apply.Places {
	namespaces := []string{s.Config.Namespace}
	if s.Hold != HoldForeign && s.Namespace() != s.Config.Namespace {
		namespaces = append(namespaces, s.Namespace())
	}
	return apply.Places{Namespaces: namespaces, Counts: s.counts, Former: s.FormerUIDs}
}

func (s *Snapshot) counts(object client.Object) bool {
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

// LookAtNamespace notes whose the namespace is.
func (s *Snapshot) LookAtNamespace(namespace *corev1.Namespace, hold Hold) {
	s.Hold = hold
	s.OwnsNamespace = hold == HoldOwn || hold == HoldFormer || hold == HoldOffered && remembersNamespace(s.Config)
	s.NamespaceTaken = hold != HoldNone && !s.OwnsNamespace
	if owner, _ := key.ParseOwner(namespace.Annotations); hold == HoldFormer {
		s.FormerUIDs = []types.UID{owner.UID}
	}
}

// ReasonLegacyMachines is the reason of a condition that says that giantswarm/kvm-operator runs a cluster.
const ReasonLegacyMachines = "LegacyMachines"

// IsLegacyMachine says whether giantswarm/kvm-operator made the Deployment of a node: it has that operator's labels, and no owner.
func IsLegacyMachine(d *appsv1.Deployment) bool {
	role := d.Labels[key.LabelApp]
	return !key.HasOwner(d.Annotations) && d.Labels[key.LabelManagedBy] == key.Operator && d.Labels[key.LabelNode] != "" &&
		(role == key.RoleMaster || role == key.RoleWorker)
}

// LegacyMachines says that a cluster is not this operator's. The machines of giantswarm/kvm-operator keep etcd's data in a place that goes by
// their position in a list, and boot with data that the runner here does not know: taken over, a master would start with an empty etcd.
func LegacyMachines(d *appsv1.Deployment) error {
	return problem.Newf(ReasonLegacyMachines, "Deployment %s/%s was made by giantswarm/kvm-operator; this operator does not take its clusters over, "+
		"and changes and deletes nothing of them: let that operator keep the cluster or delete it, and make a new one for this operator "+
		"(docs/upgrading.md, \"Coming from giantswarm/kvm-operator\")", d.Namespace, d.Name)
}
