package v1alpha1_test

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

func TestOldManifestsAreAcceptedUnchanged(t *testing.T) {
	for _, name := range []string{"old-minimal", "old-full"} {
		t.Run(name, func(t *testing.T) {
			manifest := load(t, name)
			created := create(t, manifest)
			for _, loss := range lost("", manifest.Object, created.Object) {
				t.Errorf("not what the manifest says: %s", loss)
			}
		})
	}
}

// What the original's schema allowed and its users wrote, and what has no meaning any more.
var accepted = map[string]string{
	"null host volumes":                            "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: null}]}}",
	"host volumes of a master":                     "spec: {kvm: {masters: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /data1}]}]}}",
	"a mount tag with dashes":                      "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: big-data-1, hostPath: /data/1}]}]}}",
	"a host path with a slash at the end":          "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: data1, hostPath: /data1/}]}]}}",
	"a cluster ID that begins with a digit":        "spec: {cluster: {id: 8y5ck}}",
	"a cluster ID of digits only":                  `spec: {cluster: {id: "12345"}}`,
	"a name that is not the cluster ID":            "metadata: {name: production}",
	"an empty customer":                            `spec: {cluster: {customer: {id: ""}}}`,
	"an empty storage type":                        `spec: {kvm: {k8sKVM: {storageType: ""}}}`,
	"an empty acceleration":                        `spec: {kvm: {k8sKVM: {acceleration: ""}}}`,
	"an empty etcd domain":                         `spec: {cluster: {etcd: {domain: ""}}}`,
	"an empty DNS address":                         `spec: {cluster: {kubernetes: {dns: {ip: ""}}}}`,
	"empty kubelet labels":                         `spec: {cluster: {kubernetes: {kubelet: {labels: "", domain: ""}}}}`,
	"labels that kubelets may set":                 "spec: {cluster: {kubernetes: {kubelet: {labels: 'node.kubernetes.io/pool=a,topology.kubernetes.io/zone=z,topology.kubernetes.io/region=r,kubelet.kubernetes.io/x=,disk=ssd'}}}}",
	"null instead of objects":                      "spec: {cluster: {calico: null, docker: null, etcd: null}, rollout: null}",
	"ports of 0 in fields without meaning":         "spec: {cluster: {etcd: {port: 0}, kubernetes: {kubelet: {port: 0}, ingressController: {insecurePort: 0, securePort: 0}}}}",
	"another API port":                             "spec: {cluster: {kubernetes: {api: {securePort: 6443}}}}",
	"no workers":                                   "spec: {cluster: {workers: []}, kvm: {workers: []}}",
	"three masters":                                "spec: {cluster: {masters: [{id: a}, {id: b}, {id: c}]}, kvm: {masters: [{cpus: 1, memory: 4G}, {cpus: 1, memory: 4G}, {cpus: 1, memory: 4G}]}}",
	"a node ID of 39 characters":                   "spec: {cluster: {workers: [{id: aaaaaaaaaabbbbbbbbbbccccccccccddddddddd}]}}",
	"a host path below /opt and /var":              "spec: {kvm: {workers: [{cpus: 2, memory: 4G, hostVolumes: [{mountTag: a, hostPath: /opt/data}, {mountTag: b, hostPath: /var/lib/data}, {mountTag: c, hostPath: /device}]}]}}",
	"machines in another order, with IDs":          "spec: {cluster: {workers: [{id: a}, {id: b}]}, kvm: {workers: [{id: b, cpus: 2, memory: 4G}, {id: a, cpus: 2, memory: 8G}]}}",
	"memory in every unit":                         "spec: {cluster: {workers: [{id: a}, {id: b}, {id: c}]}, kvm: {workers: [{cpus: 2, memory: 4096Mi}, {cpus: 2, memory: 1.5Gi}, {cpus: 2, memory: 0.5T}]}}",
	"the least memory":                             "spec: {kvm: {workers: [{cpus: 2, memory: 512M}]}}",
	"the most memory":                              "spec: {kvm: {workers: [{cpus: 255, memory: 16Ti}]}}",
	"a disk of a fraction":                         "spec: {kvm: {workers: [{cpus: 2, memory: 4G, disk: 40.4}]}}",
	"one port without a name":                      `spec: {kvm: {portMappings: [{name: "", nodePort: 30010, targetPort: 80}]}}`,
	"node ports that the management cluster picks": "spec: {kvm: {portMappings: [{name: a, nodePort: 0, targetPort: 80}, {name: b, nodePort: 0, targetPort: 81}]}}",
	"a port name of more than 15 characters":       "spec: {kvm: {portMappings: [{name: kube-state-metrics, nodePort: 30010, targetPort: 80}]}}",
	"a user without a key":                         "spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: ''}, {name: Grace.H_1}]}}}}",
	"a key with a line break at the end":           `spec: {cluster: {kubernetes: {ssh: {userList: [{name: ada, publicKey: "ssh-ed25519 AAAA ada l\n"}]}}}}`,
	"keys of every kind":                           "spec: {cluster: {kubernetes: {ssh: {userList: [{name: a, publicKey: ssh-rsa AAAA}, {name: b, publicKey: ecdsa-sha2-nistp256 AAAA b}, {name: c, publicKey: sk-ssh-ed25519@openssh.com AAAA c}]}}}}",
	"an etcd volume in bytes":                      "spec: {kvm: {etcd: {size: 21474836480, storageClassName: ''}}}",
	"a drain that waits for ever":                  "spec: {drain: {timeout: 0s}}",
	"a drain of a hundred years":                   "spec: {drain: {timeout: 876000h}}",
	"a drain of an hour and a half":                "spec: {drain: {timeout: 1h30m}}",
	"a pre-release of Kubernetes":                  "spec: {versions: {kubernetes: 1.36.0-rc.1, etcd: ''}}",
	"an image from a file":                         "spec: {guestImage: {name: own, kernel: {url: 'file:///images/k'}, initrd: {url: 'http://10.0.0.1:8080/i', sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}, ignitionKey: opt/com.coreos/config, kernelArguments: [console=ttyS0]}}",
}

func TestWhatTheOriginalAllowedIsAccepted(t *testing.T) {
	for name, change := range accepted {
		t.Run(name, func(t *testing.T) {
			if err := server.Create(context.Background(), load(t, "minimal", change), client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoClientsMayWriteBackWhatTheyRead guards against rules that a zero value, which Go cannot leave out, would break.
func TestGoClientsMayWriteBackWhatTheyRead(t *testing.T) {
	for _, name := range []string{"old-minimal", "old-full", "minimal"} {
		t.Run(name, func(t *testing.T) {
			created := create(t, load(t, name))
			var object v1alpha1.KVMConfig
			if err := server.Get(context.Background(), client.ObjectKeyFromObject(created), &object); err != nil {
				t.Fatal(err)
			}
			if err := server.Update(context.Background(), &object); err != nil {
				t.Error(err)
			}
		})
	}
}
