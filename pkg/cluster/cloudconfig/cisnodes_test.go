package cloudconfig

import "fmt"

var nodeFiles = []item{
	{"4.1.1", "unit of the kubelet at most 0600", met, "`" + kubeletUnitFile + "` 0600", modes(0o600, kubeletUnitFile)},
	{"4.1.2", "that file is root's", met, "Ignition writes files as root", ofRoot(kubeletUnitFile)},
	{"4.1.3", "kubeconfig of kube-proxy at most 0600", met, "0600, in a volume of its pod; it names the file of the pod's token and has no secret", volumeMode("kube-proxy")},
	{"4.1.4", "that file is root's", met, "the kubelet writes volumes as root", isRoot("kube-system/kube-proxy")},
	{"4.1.5", "kubeconfig of the kubelet at most 0600", met, "the kubelet writes `" + kubeletDirectory + "/kubeconfig` with 0600; what it joins with is 0600, too", all(kubeletWritesItsKubeconfig, modes(0o600, bootstrapKubeconfig))},
	{"4.1.6", "that file is root's", met, "the kubelet is root", all(kubeletWritesItsKubeconfig, ofRoot(bootstrapKubeconfig))},
	{"4.1.7", "file of authorities at most 0644", met, "`" + caFile + "` 0644, in a directory 0700", all(modes(0o644, caFile), modes(0o700, pkiDirectory))},
	{"4.1.8", "that file is root's", met, "as above", ofRoot(caFile)},
	{"4.1.9", "configuration of the kubelet at most 0600", met, "`" + kubeletConfigFile + "` 0600, and the directory of drop-ins 0700", all(modes(0o600, kubeletConfigFile), modes(0o700, kubeletConfigDir))},
	{"4.1.10", "that file is root's", met, "as above", ofRoot(kubeletConfigFile)},
}

var kubeletItems = []item{
	{"4.2.1", "no anonymous requests", met, "`authentication.anonymous.enabled: false`", kubeletHas("authentication.anonymous.enabled", false)},
	{"4.2.2", "not everything is authorized", met, "`authorization.mode: Webhook`", kubeletHas("authorization.mode", "Webhook")},
	{"4.2.3", "an authority of clients", met, "`authentication.x509.clientCAFile`", kubeletHas("authentication.x509.clientCAFile", caFile)},
	{"4.2.4", "no port without authentication", met, "`readOnlyPort: 0`", kubeletHas("readOnlyPort", 0)},
	{"4.2.5", "idle streams end", met, "`streamingConnectionIdleTimeout: 1h`", kubeletHas("streamingConnectionIdleTimeout", "1h")},
	{"4.2.6", "`makeIPTablesUtilChains`", met, "on by default, not switched off", kubeletIsNot("makeIPTablesUtilChains", false)},
	{"4.2.7", "no `--hostname-override`", met, "not set", flagIsUnset("kubelet", "hostname-override")},
	{"4.2.8", "an appropriate `eventRecordQPS`", met, "the default of 50; not set, and not without a limit", kubeletIsNot("eventRecordQPS", 0)},
	{"4.2.9", "a serving certificate", otherwise, "`serverTLSBootstrap: true`: the kubelet asks the cluster for one, and the operator approves it for the names and addresses of the node's own pod. Flags with files would exclude that", kubeletHas("serverTLSBootstrap", true)},
	{"4.2.10", "client certificates are renewed", met, "`rotateCertificates: true`; they hold for a week by default", kubeletHas("rotateCertificates", true)},
	{"4.2.11", "serving certificates are renewed", met, "`serverTLSBootstrap: true`; the feature gate RotateKubeletServerCertificate is on by default, not switched off", all(kubeletHas("serverTLSBootstrap", true), kubeletIsNot("featureGates.RotateKubeletServerCertificate", false))},
	{"4.2.12", "strong ciphers", met, "`tlsCipherSuites`", kubeletCiphers},
	{"4.2.13", "a limit of processes in a pod", met, "`podPidsLimit: 4096`", kubeletHas("podPidsLimit", 4096)},
	{"4.2.14", "a seccomp profile by default", met, "`seccompDefault: true`", kubeletHas("seccompDefault", true)},
}

var proxyItems = []item{
	{"4.3.1", "metrics on 127.0.0.1", met, "`metricsBindAddress: 127.0.0.1:10249`", proxyMetrics},
}

const (
	byUsers   = "roles of users: yours. No role of an add-on has it"
	byLabels  = "the API server warns who makes such a pod, and notes it in the audit log, unless its namespace is `kube-system` or has its own labels. It refuses such pods where the namespace has the label `pod-security.kubernetes.io/enforce: baseline`"
	byLabels2 = "the API server refuses such pods where the namespace has the label `pod-security.kubernetes.io/enforce: restricted`"
)

var rightsItems = []item{
	{"5.1.1", "cluster-admin where required only", met, "bound to the group of the administrator's kubeconfig", administrators},
	{"5.1.2", "few may read Secrets", met, byUsers, noRoleMay("secrets", "get", "list", "watch")},
	{"5.1.3", "no wildcards in roles", met, byUsers, noWildcards},
	{"5.1.4", "few may create pods", met, byUsers, noRoleMay("pods", "create")},
	{"5.1.5", "default service accounts are not used", met, "each add-on has its own account", eachAddon(ownAccount)},
	{"5.1.6", "tokens are mounted where needed only", met, "kube-proxy, flannel and CoreDNS all ask the API server", addonsThatAsk("kube-flannel/kube-flannel-ds", "kube-system/coredns", "kube-system/kube-proxy")},
	{"5.1.7", "no use of the group system:masters", notMet, "the operator's own certificate is of this group: it makes the first bindings. No person's certificate is, and no node has it", nil},
	{"5.1.8", "few may bind, impersonate, escalate", met, byUsers, noRoleUses("bind", "impersonate", "escalate")},
	{"5.1.9", "few may create PersistentVolumes", met, byUsers, noRoleMay("persistentvolumes", "create")},
	{"5.1.10", "few may use nodes/proxy", met, byUsers + ". The API server's own client may", noRoleMay("nodes/proxy", "get", "create", "update", "patch", "delete")},
	{"5.1.11", "few may approve certificates", met, byUsers + ". The operator approves those of nodes", noRoleMay("certificatesigningrequests/approval", "update", "patch")},
	{"5.1.12", "few may change webhook configurations", met, byUsers, all(noRoleMay("validatingwebhookconfigurations", "create", "update", "patch", "delete"), noRoleMay("mutatingwebhookconfigurations", "create", "update", "patch", "delete"))},
	{"5.1.13", "few may create tokens of service accounts", met, byUsers, noRoleMay("serviceaccounts/token", "create")},
}

var podSecurityItems = []item{
	{"5.2.1", "a policy control mechanism", met, "Pod Security admission: `" + admissionFile + "` has it warn and note (baseline) and leaves it to labels of namespaces to refuse", all(podSecurityDefaults, flagIs("kube-apiserver", "admission-control-config-file", admissionFile), flagLacks("kube-apiserver", "disable-admission-plugins", "PodSecurity"))},
	{"5.2.2", "few privileged containers", yours, byLabels, nil},
	{"5.2.3", "few that share the host's processes", yours, byLabels, nil},
	{"5.2.4", "few that share the host's IPC", yours, byLabels, nil},
	{"5.2.5", "few that share the host's network", yours, byLabels, nil},
	{"5.2.6", "few with allowPrivilegeEscalation", yours, byLabels2, nil},
	{"5.2.7", "few root containers", yours, byLabels2, nil},
	{"5.2.8", "few with NET_RAW", yours, byLabels2, nil},
	{"5.2.9", "few with capabilities", yours, byLabels2, nil},
	{"5.2.10", "few Windows HostProcess containers", yours, byLabels + ". No node runs Windows", nil},
	{"5.2.11", "few hostPath volumes", yours, byLabels, nil},
	{"5.2.12", "few host ports", yours, byLabels, nil},
}

var networkItems = []item{
	{"5.3.1", "a pod network that knows NetworkPolicies", notMet, "flannel does not. `spec.addons.cni.type: custom` brings one that does", nil},
	{"5.3.2", "NetworkPolicies in all namespaces", yours, "with such a network", nil},
}

var secretItems = []item{
	{"5.4.1", "Secrets as files, not as variables", met, "no add-on has a Secret in a variable. Workloads: yours", eachAddon(noSecretsInVariables)},
	{"5.4.2", "external secret storage is considered", yours, "nothing keeps one from being installed", nil},
}

var provenanceItems = []item{
	{"5.5.1", "provenance of images is checked", yours, "by a webhook of the cluster's own or a ValidatingAdmissionPolicy; ImagePolicyWebhook needs a service outside of the cluster that no default can name", nil},
}

var generalItems = []item{
	{"5.6.1", "namespaces as boundaries", yours, "the add-ons are in `kube-system` and `kube-flannel`", nil},
	{"5.6.2", "a seccomp profile in pods", met, "`seccompDefault: true` gives those the runtime's that name none", kubeletHas("seccompDefault", true)},
	{"5.6.3", "security contexts of pods", yours, "CoreDNS has one, kube-proxy and flannel set up the node's network and need their rights", nil},
	{"5.6.4", "the namespace default is not used", met, "no add-on is there. Workloads: yours", namespaceOfItsOwn},
}

// kubeletWritesItsKubeconfig on its own disk, not Ignition.
func kubeletWritesItsKubeconfig(n *bootedNode) error {
	path := n.flags["kubelet"]["kubeconfig"]
	if _, written := n.nodes[path]; written || path != kubeletDirectory+"/kubeconfig" {
		return fmt.Errorf("the kubelet's kubeconfig is %q, written by Ignition: %t", path, written)
	}
	return nil
}
