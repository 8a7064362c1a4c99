package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/vault"
	"github.com/kvm-operator/kvm-operator/pkg/vm/disk"
	"github.com/kvm-operator/kvm-operator/pkg/vm/osimage"
)

// check returns what to write in a setting, or an empty string when its value is right. A message never repeats a URL
// because that may hold a password.
type check func(r reader, name string) string

// checks holds the checks of settings by key. A setting without a check is free text, or its type is the only
// requirement; freeSettings in the tests has the reason for each.
//
// The checks run before the operator creates anything. A wrong value would reach the nodes of all clusters at once, and
// the first node to fail on it would be a master.
var checks = map[string]check{
	flag.KubernetesAddress:       oneOf(empty, text(isAddressOf("http", "https"), "has to be the URL of the API server, such as https://10.0.0.1:6443")),
	flag.CRDLabelSelector:        selector,
	flag.Controllers:             controllers,
	flag.LeaderElectionDuration:  leaseDuration,
	flag.LeaderElectionName:      text(isDomain, "has to be the name of a Lease, such as kvm-operator"),
	flag.LeaderElectionNamespace: text(isLabel, "has to be the name of a namespace, such as giantswarm"),
	flag.RBACGeneral:             oneOf(empty, text(isObjectName, "has to be the name of a ClusterRole, or empty for no binding")),
	flag.RBACPSP:                 oneOf(empty, text(isObjectName, "has to be the name of a ClusterRole, or empty for no binding")),
	flag.IngressClassName:        oneOf(empty, text(isDomain, "has to be the name of an IngressClass, such as nginx, or empty for no Ingress")),
	flag.IngressAllowedDomains:   each(isDomain, "has to hold DNS domains in lower-case letters, such as k8s.example.org"),
	flag.SecretsAdoptFrom:        each(isLabel, "has to hold names of namespaces"),
	flag.ServerListenAddress:     oneOf(empty, text(isListenAddress, "has to be an address such as http://127.0.0.1:8000, or empty for no server")),
	flag.ServerListenMetricsAddress: oneOf(empty, text(isListenAddress,
		"has to be an address such as http://0.0.0.0:8001, or empty for no second address")),

	flag.ImageRunner: text(isImage, "has to be the reference of an image, such as registry.example.org/kvm-operator-runner:4.0.0"),
	flag.InstallationDomain: text(isDomain,
		"has to be a DNS domain in lower-case letters without a dot at its end, such as cluster.local"),
	flag.InstallationDNSServers:   each(isServer, "has to hold addresses without port, such as 10.0.0.2,10.0.0.3"),
	flag.InstallationPodCIDRs:     each(isNetwork, "has to hold networks such as 10.244.0.0/16: an address with all bits behind the prefix zero"),
	flag.InstallationServiceCIDRs: each(isNetwork, "has to hold networks such as 10.96.0.0/12: an address with all bits behind the prefix zero"),
	flag.InstallationHostCIDRs: func(r reader, name string) string {
		return wrong(state.Settings{Egress: state.Egress{HostCIDRs: r.list(name)}}.Validate())
	},
	flag.EgressAllowed: func(r reader, name string) string {
		return wrong(state.Settings{Egress: state.Egress{Allowed: r.list(name)}}.Validate())
	},
	flag.InstallationNTPServers: guests(func(s *cloudconfig.Settings, r reader, name string) { s.NTPServers = r.list(name) }),

	flag.RegistryDomain:          guest(func(s *cloudconfig.Settings, v string) { s.RegistryDomain = v }),
	flag.RegistryDockerhubToken:  guest(func(s *cloudconfig.Settings, v string) { s.DockerhubToken = v }),
	flag.RegistryMirrors:         guests(func(s *cloudconfig.Settings, r reader, name string) { s.RegistryMirrors = r.list(name) }),
	flag.WorkloadBinariesURL:     guest(func(s *cloudconfig.Settings, v string) { s.BinaryBaseURL = v }),
	flag.WorkloadCNIPluginsURL:   guest(func(s *cloudconfig.Settings, v string) { s.CNIPluginsBaseURL = v }),
	flag.WorkloadSSHSSOPublicKey: guest(func(s *cloudconfig.Settings, v string) { s.SSOPublicKey = v }),
	flag.WorkloadProxyHTTP:       guest(func(s *cloudconfig.Settings, v string) { s.Proxy.HTTP = v }),
	flag.WorkloadProxyHTTPS:      guest(func(s *cloudconfig.Settings, v string) { s.Proxy.HTTPS = v }),
	flag.WorkloadProxyNoProxy:    guests(func(s *cloudconfig.Settings, r reader, name string) { s.Proxy.NoProxy = r.list(name) }),
	flag.OIDCIssuerURL:           oidc(func(o *v1alpha1.OIDC, v string) { o.IssuerURL = v }),
	flag.OIDCClientID:            oidc(func(o *v1alpha1.OIDC, v string) { o.ClientID = v }),
	flag.OIDCUsernameClaim:       oidc(func(o *v1alpha1.OIDC, v string) { o.UsernameClaim = v }),
	flag.OIDCUsernamePrefix:      oidc(func(o *v1alpha1.OIDC, v string) { o.UsernamePrefix = v }),
	flag.OIDCGroupsClaim:         oidc(func(o *v1alpha1.OIDC, v string) { o.GroupsClaim = v }),
	flag.OIDCGroupsPrefix:        oidc(func(o *v1alpha1.OIDC, v string) { o.GroupsPrefix = v }),

	flag.ServerLogFormat:         text(func(s string) bool { return s == logJSON || s == logText }, "has to be json or text"),
	flag.ServerLogLevel:          text(func(s string) bool { _, there := logLevels[s]; return there }, "has to be error, info or debug"),
	flag.EtcdRetention:           duration(0, "has to be zero or more, such as 168h; zero removes the data of a master at once"),
	flag.WorkloadKubeconfigTerm:  duration(day, "has to be a day or more, such as 168h"),
	flag.WorkloadNodeTerm:        duration(day, "has to be a day or more, such as 168h"),
	flag.MachineImageDirectories: each(isDirectory, "has to hold absolute paths of directories, such as /usr/code/images/own"),
	flag.NodePodsAnnotations: each(parses(func(s string) error { _, _, err := state.ParseAnnotation(s); return err }),
		"has to hold annotations such as example.org/team=platform"),
	flag.NodePodsNodeSelector: each(parses(func(s string) error { _, _, err := state.ParseLabel(s); return err }),
		"has to hold labels such as example.org/machines=true"),
	flag.NodePodsTolerations: each(parses(func(s string) error { _, err := state.ParseToleration(s); return err }),
		"has to hold taints such as example.org/machines=true:NoSchedule"),
	flag.NodePodsPullSecrets:   each(isDomain, "has to hold names of Secrets, such as registry"),
	flag.NodePodsPriorityClass: oneOf(empty, text(isDomain, "has to be the name of a PriorityClass, such as kvm-operator-machines")),
	flag.NodePodsZoneSpread:    text(isZoneSpread, "has to be none, preferred or required"),
	flag.MachineKVMResource:    each(isExtendedResource, "has to hold names of extended resources, such as devices.kubevirt.io/kvm"),
	flag.MachinePodSecurity:    podSecurity,
	flag.MachineMaxImageFile:   text(isDiskSize, "has to be a size of at least 1M, such as 8G"),
	flag.MachineDiskRequest:    percentage,
	flag.VMImage:               text(isImage, "has to be the reference of an image, such as registry.example.org/kvm-operator-vm-runner:4.0.0"),
	flag.VMBridges:             each(isInterface, "has to hold names of bridges, at most 15 characters, such as br0"),
	flag.VMAllowedImages:       each(isImage, "has to hold images or their repositories, such as registry.example.org/vm-runner"),
	flag.VMLoadBalancerAnnotations: each(parses(func(s string) error { _, _, err := state.ParseAnnotation(s); return err }),
		"has to hold annotations such as example.org/pool=displays"),
	flag.VMLoadBalancerLabels: each(parses(func(s string) error { _, _, err := state.ParseLabel(s); return err }),
		"has to hold labels such as example.org/team=platform"),
	flag.VMImageRepository:      oneOf(empty, text(isDomain, "has to be the name of a PersistentVolumeClaim, such as vmop-image-repository")),
	flag.VMDataStorageClass:     oneOf(empty, text(isDomain, "has to be the name of a StorageClass, such as local")),
	flag.WorkloadFlatcarChannel: text(isLabel, "has to be a release channel of Flatcar, such as stable"),
	flag.WorkloadFlatcarMirror:  oneOf(empty, flatcarMirror),
	flag.DrainTimeout:           duration(0, "has to be zero or more, such as 1h; zero waits without an end"),

	flag.VaultAddress:         oneOf(empty, text(isAddressOf("http", "https"), "has to be the URL of Vault, such as https://vault.example.org:8200")),
	flag.VaultKubernetesRole:  text(isVaultName, "has to be the name of a role, such as kvm-operator"),
	flag.VaultKubernetesMount: text(isVaultPath, "has to be the path of an auth method, such as kubernetes"),
	flag.VaultMountPrefix:     text(isVaultPath, "has to be the beginning of a path of Vault, such as pki-"),
	flag.VaultTTL:             duration(vault.LeastTTL, "has to be 168h or more: each renewal replaces the masters of a cluster"),
}

// validate returns one sentence for each wrong setting, which says what to write instead.
func validate(fs *pflag.FlagSet, tables ...map[string]check) error {
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		for _, table := range tables {
			if c, ok := table[f.Name]; ok {
				if message := c(reader{fs}, f.Name); message != "" {
					errs = append(errs, fmt.Errorf("%s %s", f.Name, message))
				}
			}
		}
	})
	return errors.Join(errs...)
}

func text(ok func(string) bool, message string) check {
	return func(r reader, name string) string {
		if ok(r.text(name)) {
			return ""
		}
		return message
	}
}

func each(ok func(string) bool, message string) check {
	return func(r reader, name string) string {
		for _, item := range r.list(name) {
			if !ok(item) {
				return fmt.Sprintf("%s; %q is none", message, item)
			}
		}
		return ""
	}
}

func duration(least time.Duration, message string) check {
	return func(r reader, name string) string {
		if r.duration(name) >= least {
			return ""
		}
		return message
	}
}

// oneOf passes when one of the checks passes. Otherwise it returns the message of the last check.
func oneOf(checks ...check) check {
	return func(r reader, name string) (last string) {
		for _, c := range checks {
			if last = c(r, name); last == "" {
				return ""
			}
		}
		return last
	}
}

func empty(r reader, name string) string {
	if r.text(name) == "" {
		return ""
	}
	return "has to be empty"
}

// guest checks one value with the validation in the package that uses the setting.
func guest(set func(*cloudconfig.Settings, string)) check {
	return guests(func(s *cloudconfig.Settings, r reader, name string) { set(s, r.text(name)) })
}

func guests(set func(*cloudconfig.Settings, reader, string)) check {
	return func(r reader, name string) string {
		var s cloudconfig.Settings
		set(&s, r, name)
		return wrong(s.Validate())
	}
}

// oidc checks one field of single sign-on together with the two fields that are required.
func oidc(set func(*v1alpha1.OIDC, string)) check {
	return func(r reader, name string) string {
		value := r.text(name)
		if value == "" {
			return ""
		}
		o := v1alpha1.OIDC{ClientID: r.text(flag.OIDCClientID), IssuerURL: r.text(flag.OIDCIssuerURL)}
		set(&o, value)
		return wrong((cloudconfig.Settings{OIDC: o}).Validate())
	}
}

// wrong returns the message of an error that another package's validation found.
func wrong(err error) string {
	if err == nil {
		return ""
	}
	return "is wrong: " + err.Error()
}

// controllers refuses names of controllers that there are not, and an operator without any.
func controllers(r reader, name string) string {
	all := []string{flag.ControllerKVMConfig, flag.ControllerVirtualMachine, flag.ControllerSmolVM}
	message := "has to hold one or more of " + strings.Join(all, ", ")
	if len(r.list(name)) == 0 {
		return message
	}
	return each(func(s string) bool { return slices.Contains(all, s) }, message)(r, name)
}

func selector(r reader, name string) string {
	if _, err := labels.Parse(r.text(name)); err != nil {
		return "has to be a label selector, such as kvm-operator.giantswarm.io/version=4.0.0: " + err.Error()
	}
	return ""
}

// flatcarMirror checks the URLs with the code that reads the image.
func flatcarMirror(r reader, name string) string {
	description, err := json.Marshal(osimage.FlatcarFrom(r.text(name), "stable", "4459.2.1"))
	if err == nil {
		_, err = osimage.Parse(description)
	}
	if err != nil {
		return "has to be the http, https or file URL of a directory, such as https://mirror.example.org/flatcar/{channel}/{version}"
	}
	return ""
}

func kubeconfig(r reader, name string) string {
	content := r.text(name)
	if content == "" {
		return ""
	}
	if _, err := clientcmd.RESTConfigFromKubeConfig([]byte(content)); err != nil {
		return "has to be the content of a kubeconfig: " + err.Error()
	}
	return ""
}

// leaseDuration is in seconds in the Lease. Below 3 s, one slow answer of the API server would change the leader.
func leaseDuration(r reader, name string) string {
	const least, most = 3 * time.Second, 5 * time.Minute
	if d := r.duration(name); d < least || d > most || d%time.Second != 0 {
		return "has to be whole seconds from 3s to 5m, such as 15s"
	}
	return ""
}

// day is the shortest validity of certificates that are renewed while the operator runs.
const day = 24 * time.Hour

// isDirectory accepts a directory for files, but not the root because that holds every file of the node pod.
func isDirectory(s string) bool { return filepath.IsAbs(s) && filepath.Clean(s) == s && s != "/" }

func isLabel(s string) bool      { return len(validation.IsDNS1123Label(s)) == 0 }
func isDomain(s string) bool     { return len(validation.IsDNS1123Subdomain(s)) == 0 }
func isObjectName(s string) bool { return s != "" && len(path.IsValidPathSegmentName(s)) == 0 } //nolint:staticcheck // the successor is in another package

// isServer accepts an address that a resolver can query. The runner passes it to guests by DHCP.
func isServer(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast()
}

// isNetwork accepts a network as NetworkPolicies take it, except the network of all addresses, which separates nothing.
func isNetwork(s string) bool {
	p, err := netip.ParsePrefix(s)
	return err == nil && p.Bits() > 0 && p == p.Masked()
}

func isAddressOf(schemes ...string) func(string) bool {
	return func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && slices.Contains(schemes, u.Scheme) && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" && portOK(u.Port())
	}
}

func isListenAddress(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	_, port, err := net.SplitHostPort(u.Host)
	return err == nil && port != "" && portOK(port) && (u.Scheme == "http" || u.Scheme == "https")
}

func portOK(port string) bool {
	n, err := strconv.Atoi(port)
	return port == "" || err == nil && n >= 0 && n <= 65535
}

// imagePattern is the grammar of references to images
// (https://github.com/distribution/reference/blob/main/reference.go): host, path, tag and digest.
var imagePattern = regexp.MustCompile(`^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*(:[0-9]{1,5})?/|\[[0-9a-fA-F:]+\](:[0-9]{1,5})?/)?` +
	`[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*` +
	`(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)

func isImage(s string) bool { return len(s) <= 512 && imagePattern.MatchString(s) }

var interfacePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$`)

func isInterface(s string) bool { return interfacePattern.MatchString(s) && s != "." && s != ".." }

var vaultPattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$`)

// isVaultPath accepts a path without characters that a URL treats specially and without "..".
func isVaultPath(s string) bool {
	return len(s) <= 128 && vaultPattern.MatchString(s) && !strings.Contains(s, "..")
}
func isVaultName(s string) bool { return isVaultPath(s) && !strings.Contains(s, "/") }

// isDiskSize accepts the size of a file in the runner's syntax.
func isDiskSize(s string) bool {
	size, err := disk.ParseSize(s)
	return err == nil && size >= 1<<20
}

func percentage(r reader, name string) string {
	if percent := r.number(name); percent < 0 || percent > 100 {
		return fmt.Sprintf("is %d and has to be between 0 and 100", percent)
	}
	return ""
}

// isExtendedResource accepts resources that device plugins may offer. Kubernetes reserves domains below kubernetes.io.
func isExtendedResource(s string) bool {
	domain, _, found := strings.Cut(s, "/")
	return found && len(validation.IsQualifiedName(s)) == 0 && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

func parses(parse func(string) error) func(string) bool {
	return func(s string) bool { return parse(s) == nil }
}

func isZoneSpread(s string) bool {
	return slices.Contains([]state.ZoneSpread{state.ZoneSpreadNone, state.ZoneSpreadPreferred, state.ZoneSpreadRequired}, state.ZoneSpread(s))
}

// podSecurity: at level baseline, node pods have no access to the host's devices or to the pod's network device.
func podSecurity(r reader, name string) string {
	switch level := r.text(name); {
	case level != key.PodSecurityPrivileged && level != key.PodSecurityBaseline:
		return fmt.Sprintf("has to be privileged or baseline and not %q", level)
	case level == key.PodSecurityBaseline && len(r.list(flag.MachineKVMResource)) == 0:
		return "is baseline, for which a device plugin has to bring /dev/kvm: name its resource in " + flag.MachineKVMResource
	case level == key.PodSecurityBaseline && r.yes(flag.MachineForeignSources):
		return "is baseline, with which guests cannot send with addresses that are not their own: set " + flag.MachineForeignSources + " to false"
	}
	return ""
}
