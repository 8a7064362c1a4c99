package cloudconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcdfiles"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

const (
	// etcdDirectory is where the share with etcd's data is mounted.
	etcdDirectory = "/var/lib/etcd"
	// etcdData is a directory below it, because the root of a volume may contain other entries (lost+found).
	etcdData = etcdDirectory + "/" + etcdfiles.Data
	// portEtcdHealth serves probes on localhost, because a probe cannot present a client certificate.
	portEtcdHealth = 2381
	// etcdService is the unit that decides whether the member may start.
	etcdService = "k8s-etcd.service"
	// etcdManifest is where the static pod waits until it is decided that the member may start.
	etcdManifest = "/etc/kubernetes/etcd/etcd.yaml"
)

// etcdMember is the member of this master and what a person at its shell needs to talk to it.
func etcdMember(p Params) parts {
	if !p.master() {
		return parts{}
	}
	pod := etcdPod(p).file(p)
	pod.path = etcdManifest
	all := parts{directories: []string{path.Dir(etcdManifest)}, files: []file{
		pod,
		{path: "/etc/profile.d/etcdctl.sh", mode: modePublic, text: etcdctl},
		{path: scriptDirectory + "/etcd", mode: modeExecutable, text: asset("etcd.sh")},
	}}
	all.units = append(all.units, service(etcdService, fmt.Sprintf(etcdUnit, etcdDirectory, etcdData, p.EtcdFoundingToken, FoundingToken(p.EncryptionKey), etcdManifest, manifestDirectory)))
	return all
}

// The kubelet does not wait for this unit: a master whose member must not start still joins the cluster.
const etcdUnit = `[Unit]
Description=This master's member of etcd
RequiresMountsFor=%s

[Service]
Type=oneshot
RemainAfterExit=yes
Environment=DATA=%s "TICKET=%s" CLUSTER=%s MANIFEST=%s MANIFESTS=%s
ExecStart=/opt/kvm-operator/etcd
StandardError=journal+console

[Install]
WantedBy=multi-user.target
`

// etcdctl configures the command line for the member; only root can read the key.
const etcdctl = `export ETCDCTL_ENDPOINTS=https://127.0.0.1:2379
export ETCDCTL_CACERT=` + etcdCAFile + `
export ETCDCTL_CERT=` + etcdMemberFile + `
export ETCDCTL_KEY=` + etcdMemberKey + `
`

func etcdPod(p Params) component {
	health := probe{path: "/livez", port: portEtcdHealth, scheme: corev1.URISchemeHTTP}
	ready := health
	ready.path = "/readyz"
	return component{
		name:    "etcd",
		image:   EtcdImage(p.Settings, p.Versions.Etcd),
		command: etcdCommand(p),
		mounts: []mount{
			{name: "data", path: etcdDirectory, kind: corev1.HostPathDirectory, writable: true},
			directory("pki", etcdPKIDirectory),
		},
		// This is more than any other component's: clients of etcd wait for it, and the request also determines the
		// share of a busy machine.
		cpu: "300m", memory: "256Mi",
		// It is alive even without quorum: a founding member that waits for the others must not be killed for it.
		live: health, ready: ready,
	}
}

func etcdCommand(p Params) []string {
	name := pki.EtcdMember(p.Node.ID)
	var members []string
	var own Member
	for _, m := range slices.SortedFunc(slices.Values(p.EtcdMembers), func(a, b Member) int { return cmp.Compare(a.Name, b.Name) }) {
		members = append(members, m.Name+"="+m.PeerURL)
		if m.Name == name {
			own = m
		}
	}
	command := []string{
		"etcd",
		"--name=" + name,
		"--data-dir=" + etcdData,
		"--initial-cluster=" + strings.Join(members, ","),
		"--initial-cluster-state=" + p.EtcdState,
		// This keeps members of another cluster out, should an address ever be reused.
		"--initial-cluster-token=" + EtcdToken(p.Cluster.ID, p.EtcdFrom),
		"--initial-advertise-peer-urls=" + own.PeerURL,
		"--advertise-client-urls=" + clientURL(own),
		fmt.Sprintf("--listen-peer-urls=https://0.0.0.0:%d", key.PortEtcdPeer),
		fmt.Sprintf("--listen-client-urls=https://0.0.0.0:%d", key.PortEtcdClient),
		fmt.Sprintf("--listen-metrics-urls=http://%s:%d", localhost, portEtcdHealth),
		"--cert-file=" + etcdMemberFile,
		"--key-file=" + etcdMemberKey,
		"--client-cert-auth=true",
		"--trusted-ca-file=" + etcdCAFile,
		"--peer-cert-file=" + etcdMemberFile,
		"--peer-key-file=" + etcdMemberKey,
		"--peer-client-cert-auth=true",
		"--peer-trusted-ca-file=" + etcdCAFile,
		cipherSuites("cipher-suites"),
		fmt.Sprintf("--quota-backend-bytes=%d", int64(etcd.Quota)),
		// The API server compacts every five minutes; this applies while none does.
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=1h",
		// Three times the defaults: members are on different hosts, behind a shared file system, perhaps emulated. The
		// election timeout has to be ten times the heartbeat.
		fmt.Sprintf("--heartbeat-interval=%d", 300*p.slowness()),
		fmt.Sprintf("--election-timeout=%d", 3000*p.slowness()),
		// The log makes writes durable. Writing pages back ten times per second, the default, delays every request if a
		// file system is slow.
		"--backend-batch-interval=500ms",
		// A member whose data is corrupt refuses to start instead of spreading it.
		"--feature-gates=InitialCorruptCheck=true",
		// This lets the API server serve consistent lists from its cache.
		"--watch-progress-notify-interval=" + p.slowed(5*time.Second),
	}
	if p.Emulated {
		// Nearly every request takes longer than the defaults of 100 and 300 ms, and two log lines for each make it
		// even slower.
		command = append(command, "--warning-apply-duration=3s", "--warning-unary-request-duration=9s")
	}
	return command
}

// FoundingToken returns the Params.EtcdFoundingToken of the founding members of a cluster with this encryption key. The data
// of its members is marked with it: it distinguishes the data of this cluster from that of an earlier one with the same
// id, which may still be on the hosts. Without the key the data cannot be read.
func FoundingToken(encryptionKey string) string {
	sum := sha256.Sum256([]byte(encryptionKey))
	return EtcdFounding + hex.EncodeToString(sum[:4])
}

// EtcdToken distinguishes one cluster's members from those of others, and by Params.EtcdFrom from those that ran
// before.
func EtcdToken(id, from string) string {
	if from == "" {
		return "etcd-" + id
	}
	return "etcd-" + id + "-" + from
}

// EtcdImage is the container image of etcd and its tools.
func EtcdImage(s Settings, version string) string { return image(s, "etcd", version+"-0") }

// clientURL returns where clients reach a member: its peer host, the client port.
func clientURL(m Member) string {
	u, err := url.Parse(m.PeerURL)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("https://%s:%d", u.Hostname(), key.PortEtcdClient)
}
