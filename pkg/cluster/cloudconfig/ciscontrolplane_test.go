package cloudconfig

import (
	"fmt"
	"path"

	"k8s.io/apiserver/pkg/apis/audit"
)

const (
	apiServerManifest         = manifestDirectory + "/kube-apiserver.yaml"
	controllerManagerManifest = waitingDirectory + "/kube-controller-manager.yaml"
	schedulerManifest         = waitingDirectory + "/kube-scheduler.yaml"
)

var controlPlaneFiles = []item{
	{"1.1.1", "manifest of the API server at most 0600", met, "`" + apiServerManifest + "` 0600, in a directory 0700", all(modes(0o600, apiServerManifest), modes(0o700, manifestDirectory))},
	{"1.1.2", "that file is root's", met, "Ignition writes files as root", ofRoot(apiServerManifest)},
	{"1.1.3", "manifest of the controller manager at most 0600", met, "`" + controllerManagerManifest + "` 0600, and so is its copy in `" + manifestDirectory + "`", all(modes(0o600, controllerManagerManifest), modes(0o700, waitingDirectory), holds(scriptDirectory+"/controllers", "cp -p "))},
	{"1.1.4", "that file is root's", met, "as above", ofRoot(controllerManagerManifest)},
	{"1.1.5", "manifest of the scheduler at most 0600", met, "`" + schedulerManifest + "` 0600, and so is its copy in `" + manifestDirectory + "`", all(modes(0o600, schedulerManifest), holds(scriptDirectory+"/controllers", "cp -p "))},
	{"1.1.6", "that file is root's", met, "as above", ofRoot(schedulerManifest)},
	{"1.1.7", "manifest of etcd at most 0600", met, "`" + etcdManifest + "` 0600, and so is its copy in `" + manifestDirectory + "`", all(modes(0o600, etcdManifest), modes(0o700, path.Dir(etcdManifest)), holds(scriptDirectory+"/etcd", "cp -p "))},
	{"1.1.8", "that file is root's", met, "as above", ofRoot(etcdManifest)},
	{"1.1.9", "configuration of the pod network at most 0600", met, "flannel copies `10-flannel.conflist` from files with the mode 0600. A network of your own: yours", volumeMode("kube-flannel-cfg")},
	{"1.1.10", "those files are root's", met, "flannel's pod is root", isRoot("kube-flannel/kube-flannel-ds")},
	{"1.1.11", "directory with etcd's data at most 0700", met, "etcd makes `" + etcdData + "` so, and the unit `k8s-etcd` sees to it for data that others put there", all(flagIs("etcd", "data-dir", etcdData), holds(scriptDirectory+"/etcd", `chmod 0700 "$DATA"`))},
	{"1.1.12", "that directory is of the user etcd", notMet, "it is root's: the member is a static pod that runs as root, and a guest image need not have such a user. No other user may read it (1.1.11)", etcdIsNotRoot},
	{"1.1.13", "administrator's kubeconfig at most 0600", met, "no node has one; it is in a Secret of the management cluster", noAdministrator},
	{"1.1.14", "that file is root's", met, "as above", noAdministrator},
	{"1.1.15", "kubeconfig of the scheduler at most 0600", met, "`" + schedulerKubeconfig + "` 0600", all(modes(0o600, schedulerKubeconfig), modes(0o700, kubeconfigDirectory))},
	{"1.1.16", "that file is root's", met, "as above", ofRoot(schedulerKubeconfig)},
	{"1.1.17", "kubeconfig of the controller manager at most 0600", met, "`" + controllerManagerKubeconfig + "` 0600", modes(0o600, controllerManagerKubeconfig)},
	{"1.1.18", "that file is root's", met, "as above", ofRoot(controllerManagerKubeconfig)},
	{"1.1.19", "certificates and keys are root's", met, "`" + pkiDirectory + "` and all below it", below(pkiDirectory, "", ofRoot)},
	{"1.1.20", "certificates at most 0644", met, "0644, in a directory 0700", all(below(pkiDirectory, ".crt", modesOf(0o644)), modes(0o700, pkiDirectory, etcdPKIDirectory))},
	{"1.1.21", "keys 0600", met, "0600, in a directory 0700", below(pkiDirectory, ".key", modesOf(0o600))},
}

var apiServerItems = []item{
	{"1.2.1", "no anonymous requests", otherwise, "`" + authenticationFile + "` allows `/healthz`, `/livez` and `/readyz`, which probes ask, and nothing else; the flag `--anonymous-auth` cannot be set beside it", all(holds(authenticationFile, "anonymous:\n  conditions:\n  - path: /healthz\n  - path: /livez\n  - path: /readyz\n  enabled: true\n"), flagIsUnset("kube-apiserver", "anonymous-auth"))},
	{"1.2.2", "no `--token-auth-file`", met, "not set", flagIsUnset("kube-apiserver", "token-auth-file")},
	{"1.2.3", "admission plugin DenyServiceExternalIPs", notMet, "it would refuse the Services of clusters that have no load balancer and are reached by external addresses, and nothing in the cluster could allow them again. A ValidatingAdmissionPolicy refuses them where no Service needs them", flagLists("kube-apiserver", "enable-admission-plugins", "DenyServiceExternalIPs")},
	{"1.2.4", "a client certificate for kubelets", met, "`--kubelet-client-certificate`, `--kubelet-client-key`", flagsAreSet("kube-apiserver", "kubelet-client-certificate", "kubelet-client-key")},
	{"1.2.5", "an authority to check kubelets by", met, "`--kubelet-certificate-authority`", flagsAreSet("kube-apiserver", "kubelet-certificate-authority")},
	{"1.2.6", "not everything is authorized", met, "`--authorization-mode=Node,RBAC`", flagLacks("kube-apiserver", "authorization-mode", "AlwaysAllow")},
	{"1.2.7", "authorization of nodes", met, "as above", flagLists("kube-apiserver", "authorization-mode", "Node")},
	{"1.2.8", "authorization by RBAC", met, "as above", flagLists("kube-apiserver", "authorization-mode", "RBAC")},
	{"1.2.9", "admission plugin EventRateLimit", met, "100 events a second of one user and 500 of all, with bursts of ten times as many: `" + admissionFile + "`", all(flagLists("kube-apiserver", "enable-admission-plugins", "EventRateLimit"), flagIs("kube-apiserver", "admission-control-config-file", admissionFile), holds(admissionFile, "name: EventRateLimit"))},
	{"1.2.10", "no admission plugin AlwaysAdmit", met, "not set", flagLacks("kube-apiserver", "enable-admission-plugins", "AlwaysAdmit")},
	{"1.2.11", "admission plugin AlwaysPullImages", notMet, "nodes whose images are in the guest image, because no registry can be reached, would run nothing, and a registry that is down would keep every pod from being started again. Since Kubernetes 1.35 the kubelet asks itself whether a pod's credentials are good for an image that it has (`imagePullCredentialsVerificationPolicy`)", flagLists("kube-apiserver", "enable-admission-plugins", "AlwaysPullImages")},
	{"1.2.12", "admission plugin ServiceAccount", met, "on by default, not switched off", flagLacks("kube-apiserver", "disable-admission-plugins", "ServiceAccount")},
	{"1.2.13", "admission plugin NamespaceLifecycle", met, "on by default, not switched off", flagLacks("kube-apiserver", "disable-admission-plugins", "NamespaceLifecycle")},
	{"1.2.14", "admission plugin NodeRestriction", met, "`--enable-admission-plugins`", flagLists("kube-apiserver", "enable-admission-plugins", "NodeRestriction")},
	{"1.2.15", "no profiling", met, "`--profiling=false`", flagIs("kube-apiserver", "profiling", "false")},
	{"1.2.16", "an audit log", met, "`--audit-log-path`", flagIs("kube-apiserver", "audit-log-path", auditLogDirectory+"/audit.log")},
	{"1.2.17", "audit log kept for 30 days", met, "`--audit-log-maxage=30`, if the next two let it grow that old", flagIsAtLeast("kube-apiserver", "audit-log-maxage", 30)},
	{"1.2.18", "10 files of the audit log kept", met, "`--audit-log-maxbackup=10`", flagIsAtLeast("kube-apiserver", "audit-log-maxbackup", 10)},
	{"1.2.19", "files of the audit log of 100 MB", met, "`--audit-log-maxsize=100`", flagIsAtLeast("kube-apiserver", "audit-log-maxsize", 100)},
	{"1.2.20", "an appropriate `--request-timeout`", met, "the default of a minute; not set", flagIsUnset("kube-apiserver", "request-timeout")},
	{"1.2.21", "tokens of removed service accounts are refused", met, "the default of `--service-account-lookup`; not set", flagIsUnset("kube-apiserver", "service-account-lookup")},
	{"1.2.22", "a separate key for tokens", met, "`--service-account-key-file`", all(flagsAreSet("kube-apiserver", "service-account-key-file"), differ("kube-apiserver", "service-account-signing-key-file", "tls-private-key-file"))},
	{"1.2.23", "a client certificate for etcd", met, "`--etcd-certfile`, `--etcd-keyfile`", flagsAreSet("kube-apiserver", "etcd-certfile", "etcd-keyfile")},
	{"1.2.24", "a serving certificate", met, "`--tls-cert-file`, `--tls-private-key-file`", flagsAreSet("kube-apiserver", "tls-cert-file", "tls-private-key-file")},
	{"1.2.25", "an authority of clients", met, "`--client-ca-file`", flagsAreSet("kube-apiserver", "client-ca-file")},
	{"1.2.26", "an authority to check etcd by", met, "`--etcd-cafile`", flagsAreSet("kube-apiserver", "etcd-cafile")},
	{"1.2.27", "an encryption configuration", met, "`--encryption-provider-config`", all(flagIs("kube-apiserver", "encryption-provider-config", encryptionFile), modes(0o600, encryptionFile))},
	{"1.2.28", "a good provider of encryption", met, "Secrets are encrypted with secretbox", holds(encryptionFile, "providers:\n  - secretbox:")},
	{"1.2.29", "strong ciphers", met, "`--tls-cipher-suites`; etcd, controller manager and scheduler have the same", all(flagCiphers("kube-apiserver", "tls-cipher-suites"), flagCiphers("kube-controller-manager", "tls-cipher-suites"), flagCiphers("kube-scheduler", "tls-cipher-suites"), flagCiphers("etcd", "cipher-suites"))},
	{"1.2.30", "tokens of pods do not hold for a year", met, "`--service-account-extend-token-expiration=false`: they hold for an hour", flagIs("kube-apiserver", "service-account-extend-token-expiration", "false")},
}

var controllerManagerItems = []item{
	{"1.3.1", "an appropriate `--terminated-pod-gc-threshold`", met, "`1000`", flagIs("kube-controller-manager", "terminated-pod-gc-threshold", "1000")},
	{"1.3.2", "no profiling", met, "`--profiling=false`", flagIs("kube-controller-manager", "profiling", "false")},
	{"1.3.3", "an account for each controller", met, "`--use-service-account-credentials=true`", flagIs("kube-controller-manager", "use-service-account-credentials", "true")},
	{"1.3.4", "a key for tokens", met, "`--service-account-private-key-file`", flagsAreSet("kube-controller-manager", "service-account-private-key-file")},
	{"1.3.5", "an authority that pods check the API server by", met, "`--root-ca-file`", flagsAreSet("kube-controller-manager", "root-ca-file")},
	{"1.3.6", "feature gate RotateKubeletServerCertificate", met, "on by default, not switched off", flagLacks("kube-controller-manager", "feature-gates", "RotateKubeletServerCertificate=false")},
	{"1.3.7", "it listens on 127.0.0.1", met, "`--bind-address=127.0.0.1`; the kubelet's probes ask there", all(flagIs("kube-controller-manager", "bind-address", localhost), probesAskLocalhost("kube-controller-manager"))},
}

var schedulerItems = []item{
	{"1.4.1", "no profiling", otherwise, "`enableProfiling: false` in `" + schedulerConfig + "`; beside that file the flag which scanners look for does nothing", all(flagIs("kube-scheduler", "config", schedulerConfig), holds(schedulerConfig, "enableProfiling: false\n"))},
	{"1.4.2", "it listens on 127.0.0.1", met, "`--bind-address=127.0.0.1`; the kubelet's probes ask there", all(flagIs("kube-scheduler", "bind-address", localhost), probesAskLocalhost("kube-scheduler"))},
}

var etcdItems = []item{
	{"2.1", "a serving certificate", met, "`--cert-file`, `--key-file`", flagsAreSet("etcd", "cert-file", "key-file")},
	{"2.2", "clients show certificates", met, "`--client-cert-auth=true`", flagIs("etcd", "client-cert-auth", "true")},
	{"2.3", "none that etcd makes itself", met, "`--auto-tls` is not set", flagIsUnset("etcd", "auto-tls")},
	{"2.4", "certificates among members", met, "`--peer-cert-file`, `--peer-key-file`", flagsAreSet("etcd", "peer-cert-file", "peer-key-file")},
	{"2.5", "members show certificates", met, "`--peer-client-cert-auth=true`", flagIs("etcd", "peer-client-cert-auth", "true")},
	{"2.6", "none that members make themselves", met, "`--peer-auto-tls` is not set", flagIsUnset("etcd", "peer-auto-tls")},
	{"2.7", "a separate CA", met, "`--trusted-ca-file` holds the authority `etcd-ca`, which signs for nothing else", ownAuthorityOfEtcd},
}

var userItems = []item{
	{"3.1.1", "no client certificates for users", yours, "sign-on is `spec.cluster.kubernetes.api.oidc`. The administrator's kubeconfig has a certificate, whose group can be unbound", nil},
	{"3.1.2", "no service account tokens for users", yours, "the operator makes none", nil},
	{"3.1.3", "no bootstrap tokens for users", yours, "the operator's are for nodes that join, allow no more than to ask for a certificate, and change twice a day", nil},
}

var auditItems = []item{
	{"3.2.1", "an audit policy", met, "`" + auditPolicyFile + "`", flagIs("kube-apiserver", "audit-policy-file", auditPolicyFile)},
	{"3.2.2", "it covers what matters", met, "who did what to what, for all but reads of the cluster's own components, events and leases; of Secrets, ConfigMaps and tokens never the content; of changes of rights the request, too", all(
		audits("get secrets", audit.LevelMetadata), audits("update configmaps", audit.LevelMetadata), audits("create tokenreviews.authentication.k8s.io", audit.LevelMetadata),
		audits("patch pods", audit.LevelMetadata), audits("delete deployments.apps", audit.LevelMetadata), audits("create pods/exec", audit.LevelMetadata),
		audits("create pods/portforward", audit.LevelMetadata), audits("get pods/proxy", audit.LevelMetadata), audits("get services/proxy", audit.LevelMetadata),
		audits("create rolebindings.rbac.authorization.k8s.io", audit.LevelRequest))},
}

// etcdIsNotRoot checks that the member runs as another user.
func etcdIsNotRoot(n *bootedNode) error {
	if context := n.pods["etcd"].Spec.SecurityContext; context == nil || context.RunAsUser == nil || *context.RunAsUser == 0 {
		return fmt.Errorf("etcd runs as root")
	}
	return nil
}

// noAdministrator checks that the kubeconfigs of a node are only those of its components.
func noAdministrator(n *bootedNode) error {
	for file := range n.nodes {
		if path.Dir(file) == kubeconfigDirectory && file != schedulerKubeconfig && file != controllerManagerKubeconfig && file != bootstrapKubeconfig {
			return fmt.Errorf("%s is a kubeconfig of another user", file)
		}
	}
	return nil
}

// probesAskLocalhost checks that the component is probed on localhost.
func probesAskLocalhost(name string) inspection {
	return func(n *bootedNode) error {
		container := n.pods[name].Spec.Containers[0]
		if host := container.LivenessProbe.HTTPGet.Host; host != localhost {
			return fmt.Errorf("the probes of %s ask %q", name, host)
		}
		return nil
	}
}

// ownAuthorityOfEtcd checks that etcd and the API server trust different CAs.
func ownAuthorityOfEtcd(n *bootedNode) error {
	if own := n.flags["etcd"]["trusted-ca-file"]; own == "" || own == n.flags["kube-apiserver"]["client-ca-file"] {
		return fmt.Errorf("etcd trusts %q", own)
	}
	return nil
}
