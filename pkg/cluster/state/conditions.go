package state

// Conditions of a KVMConfig that more than one package uses.
const (
	// ConditionReady is True when every step of every controller is done.
	ConditionReady = "Ready"
	// ConditionCertificates is about certificates, keys and the kubeconfig.
	ConditionCertificates = "CertificatesReady"
	// ConditionSnapshots is about snapshots of etcd. It exists only if snapshots are configured.
	ConditionSnapshots = "SnapshotsTaken"
	// ConditionNodesPruned belongs to the deleter, and ConditionNodesRepaired to the controller
	// unhealthynodeterminator. They exist only while there is something to report.
	ConditionNodesPruned   = "NodesPruned"
	ConditionNodesRepaired = "NodesRepaired"
	// ConditionEndpoints belongs to the drainer, and exists only while the endpoints of Services cannot be written.
	ConditionEndpoints = "EndpointsUpdated"
)

// ConditionsOfOthers are those that the cluster controller does not write and that count for Ready.
var ConditionsOfOthers = []string{ConditionEndpoints, ConditionNodesPruned, ConditionNodesRepaired}
