// Package flag holds the daemon's settings: their keys and defaults, and where their values come from. It has no
// behavior.
package flag

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Keys of the daemon's settings. Each key is a flag, a path in configuration files and, in upper case with underscores,
// an environment variable.
const (
	ConfigDirs  = "config.dirs"
	ConfigFiles = "config.files"

	ServerListenAddress        = "server.listen.address"
	ServerListenMetricsAddress = "server.listen.metricsaddress"
	ServerEnableDebugServer    = "server.enable.debug.server"
	ServerLogAccess            = "server.log.access"
	ServerLogFormat            = "server.log.format"
	ServerLogLevel             = "server.log.level"
	ServerTLSCAFile            = "server.tls.cafile"
	ServerTLSCrtFile           = "server.tls.crtfile"
	ServerTLSKeyFile           = "server.tls.keyfile"

	KubernetesAddress        = "service.kubernetes.address"
	KubernetesInCluster      = "service.kubernetes.incluster"
	KubernetesKubeconfig     = "service.kubernetes.kubeconfig"
	KubernetesKubeconfigPath = "service.kubernetes.kubeconfigpath"
	KubernetesTLSCAFile      = "service.kubernetes.tls.cafile"
	KubernetesTLSCrtFile     = "service.kubernetes.tls.crtfile"
	KubernetesTLSKeyFile     = "service.kubernetes.tls.keyfile"

	Controllers               = "service.controllers"
	DrainTimeout              = "service.drain.timeout"
	EtcdRetention             = "service.etcd.retention"
	CRDLabelSelector          = "service.crd.labelselector"
	LeaderElectionDuration    = "service.leaderelection.leaseduration"
	LeaderElectionEnabled     = "service.leaderelection.enabled"
	LeaderElectionName        = "service.leaderelection.name"
	LeaderElectionNamespace   = "service.leaderelection.namespace"
	ImageRunner               = "service.image.runner"
	IngressClassName          = "service.ingress.classname"
	InstallationDomain        = "service.installation.clusterdomain"
	InstallationDNSServers    = "service.installation.dns.servers"
	InstallationNTPServers    = "service.installation.ntp.servers"
	InstallationPodCIDRs      = "service.installation.podcidrs"
	InstallationServiceCIDRs  = "service.installation.servicecidrs"
	InstallationSharedHosts   = "service.installation.sharedhosts"
	MachineAllowEmulation     = "service.machine.allowemulation"
	MachineNested             = "service.machine.nestedvirtualization"
	MachineImageDirectories   = "service.machine.imagedirectories"
	NodePodsAnnotations       = "service.nodepods.annotations"
	NodePodsPullSecrets       = "service.nodepods.imagepullsecrets"
	NodePodsNodeSelector      = "service.nodepods.nodeselector"
	NodePodsPriorityClass     = "service.nodepods.priorityclassname"
	NodePodsTolerations       = "service.nodepods.tolerations"
	NodePodsZoneSpread        = "service.nodepods.zonespread"
	MachineKVMResource        = "service.machine.kvmresource"
	MachineMaxImageFile       = "service.machine.maximagefile"
	MachinePodSecurity        = "service.machine.podsecurity"
	MachineDiskRequest        = "service.machine.diskrequestpercent"
	OIDCClientID              = oidc + "clientid"
	OIDCIssuerURL             = oidc + "issuerurl"
	OIDCUsernameClaim         = oidc + "usernameclaim"
	OIDCUsernamePrefix        = oidc + "usernameprefix"
	OIDCGroupsClaim           = oidc + "groupsclaim"
	OIDCGroupsPrefix          = oidc + "groupsprefix"
	RBACGeneral               = "service.rbac.clusterrole.general"
	RBACPSP                   = "service.rbac.clusterrole.psp"
	RegistryDomain            = "service.registry.domain"
	RegistryMirrors           = "service.registry.mirrors"
	RegistryDockerhubToken    = "service.registry.dockerhubtoken"
	SecretsAdoptFrom          = "service.secrets.adoptfrom"
	SmolVMCAFile              = "service.smolvm.cafile"
	SmolVMPullSecrets         = "service.smolvm.pullsecrets" //nolint:gosec // the name of a setting
	SmolVMTokenFile           = "service.smolvm.tokenfile"   //nolint:gosec // the name of a setting
	TerminateUnhealthyNodes   = "service.terminateunhealthynodes"
	VaultAddress              = "service.vault.address"
	VaultCAFile               = "service.vault.cafile"
	VaultTokenFile            = "service.vault.tokenfile"
	VaultKubernetesRole       = "service.vault.kubernetes.role"
	VaultKubernetesMount      = "service.vault.kubernetes.mount"
	VaultKubernetesTokenFile  = "service.vault.kubernetes.tokenfile"
	VaultMountPrefix          = "service.vault.mountprefix"
	VaultTTL                  = "service.vault.ttl"
	WorkloadBinariesURL       = "service.workload.binaries.url"
	WorkloadCNIPluginsURL     = "service.workload.cniplugins.url"
	VMAllowedImages           = "service.virtualmachine.allowedimages"
	VMBridges                 = "service.virtualmachine.bridges"
	VMDataStorageClass        = "service.virtualmachine.datastorageclass"
	VMEnabled                 = "service.virtualmachine.enabled"
	VMExtraArgs               = "service.virtualmachine.extraargs"
	VMImage                   = "service.virtualmachine.image"
	VMLoadBalancer            = "service.virtualmachine.loadbalancer"
	VMLoadBalancerAnnotations = "service.virtualmachine.loadbalancerannotations"
	VMLoadBalancerLabels      = "service.virtualmachine.loadbalancerlabels"
	VMImageRepository         = "service.virtualmachine.imagerepository"
	WorkloadConnect           = "service.workload.connect"
	WorkloadFlatcarChannel    = "service.workload.flatcar.channel"
	WorkloadFlatcarMirror     = "service.workload.flatcar.mirror"
	WorkloadKubeconfigTerm    = "service.workload.kubeconfigterm"
	WorkloadNodeTerm          = "service.workload.nodeterm"
	WorkloadIgnitionPath      = "service.workload.ignition.path"
	WorkloadProxyHTTP         = "service.workload.proxy.http"
	WorkloadProxyHTTPS        = "service.workload.proxy.https"
	WorkloadProxyNoProxy      = "service.workload.proxy.noproxy"
	WorkloadSSHSSOPublicKey   = "service.workload.ssh.ssopublickey"
	WorkloadUpdateEnabled     = "service.workload.update.enabled"
	oidc                      = "service.installation.workload.kubernetes.api.auth.provider.oidc."
	ignored                   = " (accepted for old configurations and ignored)"
	defaultRegistry           = "registry.k8s.io"
	defaultBinaries           = "https://dl.k8s.io"
	defaultCNIPlugins         = "https://github.com/containernetworking/plugins/releases/download"
	defaultClusterRole        = "kvm-operator-node"
	defaultListenAddress      = "http://127.0.0.1:8000"
	defaultKubernetesAddress  = "http://127.0.0.1:6443"
	defaultLeaseDuration      = 15 * time.Second
	week                      = 7 * 24 * time.Hour
	defaultVaultTTL           = 365 * 24 * time.Hour
)

// The values of Controllers.
const (
	ControllerKVMConfig      = "kvmconfig"
	ControllerVirtualMachine = "virtualmachine"
	ControllerSmolVM         = "smolvm"
)

// Register adds the daemon's settings to the flags. runnerImage is the default image of node pods, vmRunnerImage that of
// VirtualMachines.
func Register(fs *pflag.FlagSet, runnerImage, vmRunnerImage string) {
	fs.SetNormalizeFunc(normalize)
	fs.StringSlice(ConfigDirs, []string{"."}, "directories that are searched for configuration files; the first that has one is used")
	fs.StringSlice(ConfigFiles, nil, "names of configuration files without extension; later ones override earlier ones")
	registerServer(fs)
	registerKubernetes(fs)
	registerInstallation(fs)
	registerNodePods(fs)
	registerVirtualMachines(fs, vmRunnerImage)
	registerSmolVMs(fs)
	registerWorkload(fs)
	registerVault(fs)
	registerTenants(fs)
	fs.String(ImageRunner, runnerImage, "image of the container of node pods")
}

func registerServer(fs *pflag.FlagSet) {
	fs.String(ServerListenAddress, defaultListenAddress, "where /healthz, /readyz and /metrics are served")
	fs.String(ServerListenMetricsAddress, "", "a second address for /metrics alone")
	fs.Bool(ServerEnableDebugServer, false, "serve profiles on 127.0.0.1:6060")
	fs.String(ServerLogFormat, "json", "format of the log: json or text")
	fs.String(ServerLogLevel, "info", "what is logged: error, info or debug")
	fs.Bool(ServerLogAccess, false, "log every request to the server")
	fs.String(ServerTLSCAFile, "", "certificate authority of the server's clients"+ignored)
	fs.String(ServerTLSCrtFile, "", "certificate of the server")
	fs.String(ServerTLSKeyFile, "", "private key of the server")
}

func registerKubernetes(fs *pflag.FlagSet) {
	fs.String(KubernetesAddress, defaultKubernetesAddress, "address of the management cluster's API server")
	fs.Bool(KubernetesInCluster, false, "use the service account of the pod that this runs in")
	fs.String(KubernetesKubeconfig, "", "content of a kubeconfig")
	fs.String(KubernetesKubeconfigPath, "", "path of a kubeconfig")
	fs.String(KubernetesTLSCAFile, "", "certificate authority of the API server")
	fs.String(KubernetesTLSCrtFile, "", "client certificate")
	fs.String(KubernetesTLSKeyFile, "", "private key of the client certificate")
	fs.String(CRDLabelSelector, "", "only KVMConfigs with these labels are reconciled, for example kvm-operator.giantswarm.io/version=4.0.0; empty means all")
	fs.Bool(LeaderElectionEnabled, true, "let only one replica reconcile at a time; false only in a debugger, while no other operator runs")
	fs.Duration(LeaderElectionDuration, defaultLeaseDuration, "duration of the Lease of leader election: how long after a failure of its host another replica takes over")
	fs.String(LeaderElectionName, "kvm-operator", "name of the Lease of leader election, the same for all replicas and for no other operator in its namespace")
	fs.String(LeaderElectionNamespace, "giantswarm", "namespace of the Lease of leader election")
	fs.String(RBACGeneral, defaultClusterRole, "ClusterRole of node pods, which need none; empty for no binding")
	fs.StringSlice(SecretsAdoptFrom, nil, "namespaces from which Secrets with certificates and keys are adopted, in addition to the namespace of the KVMConfig")
	fs.String(RBACPSP, "", "a second ClusterRole of node pods; empty for no binding")
}

func registerInstallation(fs *pflag.FlagSet) {
	fs.String(InstallationDomain, "cluster.local", "DNS domain of the management cluster")
	fs.StringSlice(InstallationDNSServers, nil, "DNS servers of the guests; none means those of the node pod")
	fs.StringSlice(InstallationNTPServers, nil, "NTP servers of the guests")
	fs.StringSlice(InstallationPodCIDRs, nil, "pod networks of the management cluster; with them, network policies are tighter and overlaps are refused")
	fs.StringSlice(InstallationServiceCIDRs, nil, "service networks of the management cluster; with them, overlaps are refused")
	fs.Bool(MachineAllowEmulation, false, "let machines be emulated in software where KVM does not work; QEMU's authors promise no protection from the guest then")
	fs.Bool(MachineNested, false, "let guests run their own virtual machines on KVM")
	fs.StringSlice(MachineImageDirectories, nil, "directories of node pods, such as /usr/code/images/own, below which file URLs of guest images may lead; none means that there are no file URLs")
	fs.StringSlice(MachineKVMResource, nil, "extended resources of device plugins that bring /dev/kvm, /dev/net/tun and /dev/vhost-net, such as devices.kubevirt.io/kvm; with them node pods are not privileged")
	fs.String(MachinePodSecurity, "privileged", "level of Pod Security that node pods meet: privileged, or baseline, which needs device plugins and has the runner forward the guest's connections")
	fs.String(MachineMaxImageFile, "8G", "how large each file of a guest image may be that is downloaded; G is 2^30 bytes")
	fs.Int(MachineDiskRequest, 100, "percentage of the size of their disks that node pods request as ephemeral storage")
	fs.Bool(InstallationSharedHosts, false, "let several machines of one cluster run on the same host")
	fs.String(IngressClassName, "", "class of the Ingresses api and etcd; empty for no Ingress")
	fs.String(OIDCClientID, "", "OIDC client id of API servers")
	fs.String(OIDCIssuerURL, "", "OIDC issuer of API servers")
	fs.String(OIDCUsernameClaim, "", "OIDC claim that is the user name")
	fs.String(OIDCUsernamePrefix, "", "prefix of OIDC user names")
	fs.String(OIDCGroupsClaim, "", "OIDC claim that is the groups")
	fs.String(OIDCGroupsPrefix, "", "prefix of OIDC groups")
}

func registerVirtualMachines(fs *pflag.FlagSet, image string) {
	fs.Bool(VMEnabled, true, "run the VirtualMachines of vmoperator.jdrupes.org, once they are defined")
	fs.String(VMImage, image, "image of the runners of VirtualMachines")
	fs.StringSlice(VMBridges, nil, "bridges of hosts that VirtualMachines may be connected to (networks[].tap), such as br0; the pod of such a machine is in the network of its host")
	fs.StringSlice(VMAllowedImages, nil, "images that spec.image of a VirtualMachine may name, each one or all with that repository, such as registry.example.org/vm; without it, the operator's own is used")
	fs.String(VMImageRepository, "", "claim, in the namespace of each VirtualMachine, that has the images of CDs; empty for none")
	fs.Bool(VMLoadBalancer, false, "create a Service of type LoadBalancer for each display that a password protects")
	fs.StringSlice(VMLoadBalancerAnnotations, nil, "annotations of these Services as key=value, which a VirtualMachine may replace")
	fs.StringSlice(VMLoadBalancerLabels, nil, "labels of these Services as key=value, which a VirtualMachine may replace")
	fs.String(VMDataStorageClass, "", "StorageClass for the variables of a machine's firmware and the state of its TPM; empty for the default one")
	fs.Bool(VMExtraArgs, false, "let VirtualMachines add arguments to QEMU's command line, by which a user may read any file of the pod")
}

func registerSmolVMs(fs *pflag.FlagSet) {
	fs.StringSlice(Controllers, []string{ControllerKVMConfig, ControllerVirtualMachine}, "controllers to run: kvmconfig, virtualmachine and smolvm, each for the custom resources of that name")
	fs.String(SmolVMTokenFile, "/var/run/kvm-operator/smolvm/token", "file with the operator's token for runtimes of SmolVMs; it is read for each request")
	fs.String(SmolVMCAFile, "", "certificate authorities of runtimes of SmolVMs; empty to trust the certificates that SmolVMNodes show")
	fs.Bool(SmolVMPullSecrets, false, "whether images of SmolVMs are pulled with the Secrets of spec.imagePullSecrets, which the operator has to be allowed to read")
}

func registerNodePods(fs *pflag.FlagSet) {
	fs.StringSlice(NodePodsAnnotations, nil, "annotations of node pods as key=value, in addition to the operator's own")
	fs.StringSlice(NodePodsPullSecrets, nil, "names of Secrets in the namespace of each cluster with credentials for the registry of the runner's image")
	fs.StringSlice(NodePodsNodeSelector, nil, "labels as key=value that hosts need in addition to their role's")
	fs.String(NodePodsPriorityClass, "", "PriorityClass of node pods; empty for the default of the management cluster")
	fs.StringSlice(NodePodsTolerations, nil, "taints that node pods tolerate, as key=value:Effect; value and effect may be left out")
	fs.String(NodePodsZoneSpread, "preferred", "how the nodes of a role are spread over zones: none, preferred or required; with required, a node pod stays pending if zones would differ by more than one node")
}

func registerWorkload(fs *pflag.FlagSet) {
	fs.String(RegistryDomain, defaultRegistry, "registry of the control plane's images")
	fs.StringSlice(RegistryMirrors, nil, "mirrors of the registry, without scheme, in the order in which they are asked")
	fs.String(RegistryDockerhubToken, "", "base64 of user:password for the registry")
	fs.Duration(DrainTimeout, time.Hour, "how long a drain waits for the pods of a node before its machine is powered down anyway; 0 waits without limit")
	fs.Bool(TerminateUnhealthyNodes, false, "replace unhealthy nodes of all clusters")
	fs.String(WorkloadBinariesURL, defaultBinaries, "where kubelets come from when the guest image has none")
	fs.String(WorkloadCNIPluginsURL, defaultCNIPlugins, "where the standard CNI plugins come from when the guest image has none")
	fs.Bool(WorkloadConnect, true, "connect to workload clusters: let nodes join, install add-ons, watch Nodes; without it, only virtual machines are created")
	fs.String(WorkloadFlatcarChannel, "stable", "release channel of the default guest image")
	fs.String(WorkloadFlatcarMirror, "", "URL of the directory with the default guest image, {channel} and {version} standing for its release; empty for Flatcar's own")
	fs.Duration(EtcdRetention, week, "how long data of etcd stays on a host after its master was removed from the cluster; 0 removes it at once")
	fs.Duration(WorkloadKubeconfigTerm, week, "how long the administrator's kubeconfig is valid; it is renewed when a third of that is left")
	fs.Duration(WorkloadNodeTerm, week, "how long the certificates of nodes are valid; kubelets renew them through the operator when 10 to 30 percent of that is left")
	fs.String(WorkloadIgnitionPath, "", "path of ignition templates"+ignored)
	fs.String(WorkloadProxyHTTP, "", "HTTP proxy of the guests")
	fs.String(WorkloadProxyHTTPS, "", "HTTPS proxy of the guests")
	fs.StringSlice(WorkloadProxyNoProxy, nil, "what guests reach without proxy")
	fs.String(WorkloadSSHSSOPublicKey, "", "public key of the SSH certificate authority that guests trust")
	fs.Bool(WorkloadUpdateEnabled, false, "update switch"+ignored)
}

func registerVault(fs *pflag.FlagSet) {
	fs.String(VaultAddress, "", "URL of a Vault that issues the certificates of new clusters; empty for CAs whose keys are in Secrets")
	fs.String(VaultCAFile, "", "CA certificates for Vault; empty for those of the system")
	fs.String(VaultTokenFile, "", "file with a token for Vault; empty to log in with the operator's service account")
	fs.String(VaultKubernetesRole, "kvm-operator", "role of Vault's Kubernetes auth method that the operator logs in with")
	fs.String(VaultKubernetesMount, "kubernetes", "path of that auth method")
	fs.String(VaultKubernetesTokenFile, "/var/run/secrets/kubernetes.io/serviceaccount/token", "token of the service account that the operator logs in with")
	fs.String(VaultMountPrefix, "pki-", "prefix of the path of each CA's secrets engine; management clusters that share a Vault need different ones")
	fs.Duration(VaultTTL, defaultVaultTTL, "how long the certificates that Vault issues are valid, except for CAs")
}

// normalize makes keys case-insensitive and reads "tenant", the original operator's older spelling, as "workload".
func normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ToLower(name)
	for _, prefix := range []string{"service.", "service.installation."} {
		if rest, ok := strings.CutPrefix(name, prefix+"tenant."); ok {
			name = prefix + "workload." + rest
		}
	}
	return pflag.NormalizedName(name)
}
