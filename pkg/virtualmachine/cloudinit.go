package virtualmachine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// CloudInit is the data of a NoCloud data source.
type CloudInit struct {
	// InstanceID is the instance-id in it.
	InstanceID string
	// Hash is that of the data without the instance-id.
	Hash string
	// Files are the files that the Secret has, by name.
	Files map[string][]byte
	// From are the Secrets of the user that have other files, by the file's name.
	From map[string]v1.SecretKeyRef
	// Err is why the data cannot be used. The guest is then started with the former data, or not at all.
	Err error
}

// mostCloudInit is how long the data may be, in bytes: what fits into a Secret, with room for its metadata.
const mostCloudInit = 1000 << 10

// Names of the files.
var (
	fileMetaData, fileUserData, fileNetwork = vmconfig.CloudInitFiles[0], vmconfig.CloudInitFiles[1], vmconfig.CloudInitFiles[2]
)

// cloudInitOf returns the data of a virtual machine, and nil if it declares none. The user's data is not checked; only
// missing keys of its metadata are added.
func cloudInitOf(o Observed) *CloudInit {
	spec := o.VM.Spec.CloudInit
	if spec == nil {
		return nil
	}
	c := &CloudInit{Files: map[string][]byte{}, From: map[string]v1.SecretKeyRef{}}
	meta := map[string]string{"local-hostname": o.VM.Name}
	maps.Copy(meta, spec.MetaData)
	c.Err = c.fill(o.VM.Spec)
	c.Hash = c.hash(meta)
	if meta[keyInstanceID] == "" {
		meta[keyInstanceID] = instanceID(o, c.Hash)
	}
	c.InstanceID = meta[keyInstanceID]
	text, err := yaml.Marshal(meta)
	c.Files[fileMetaData] = text
	c.Err = errors.Join(c.Err, err)
	if size := c.size(); size > mostCloudInit {
		c.Err = problem.Newf("CloudInitTooLarge", "the cloud-init data has %d bytes, and %d fit: let the guest download large files", size, mostCloudInit)
	}
	return c
}

const keyInstanceID = "instance-id"

// podNetwork has a guest configure the card of its pod's network whatever its address, which is another one in each pod.
// Without it, cloud-init would configure the card that the guest had at its first start. The name stands twice: netplan
// takes the one to match, and cloud-init for systemd-networkd takes the key.
const podNetwork = `version: 2
ethernets:
  "e*":
    match: {name: "e*"}
    dhcp4: true
    dhcp6: true
`

// fill adds the user's data, and what a guest with the network of its pod needs unless the user says otherwise.
func (c *CloudInit) fill(vm v1.VirtualMachineSpec) error {
	spec := vm.CloudInit
	user, err := toYAML(spec.UserData)
	if err != nil {
		return err
	}
	if spec.UserDataFrom != nil {
		c.From[fileUserData] = spec.UserDataFrom.SecretKeyRef
	} else {
		c.Files[fileUserData] = append([]byte("#cloud-config\n"), user...)
	}
	network, err := toYAML(spec.NetworkConfig)
	switch {
	case err != nil:
		return err
	case spec.NetworkConfigFrom != nil:
		c.From[fileNetwork] = spec.NetworkConfigFrom.SecretKeyRef
	case len(network) > 0:
		c.Files[fileNetwork] = network
	case slices.ContainsFunc(vm.VM.Networks, func(n v1.Network) bool { return n.Pod != nil }):
		c.Files[fileNetwork] = []byte(podNetwork)
	}
	return nil
}

// toYAML turns free JSON into YAML; nothing stays nothing.
func toYAML(raw *runtime.RawExtension) ([]byte, error) {
	if raw == nil || len(raw.Raw) == 0 {
		return nil, nil
	}
	return yaml.JSONToYAML(raw.Raw)
}

func (c *CloudInit) hash(meta map[string]string) string {
	text, err := json.Marshal(map[string]any{"files": c.Files, "from": c.From, "meta": meta})
	if err != nil {
		panic(err) // strings and bytes only
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func (c *CloudInit) size() int {
	size := 0
	for _, file := range c.Files {
		size += len(file)
	}
	return size
}

// instanceID returns the instance-id of data. By default it changes only with the data, because a guest whose
// instance-id changes sets itself up again. It is taken from the resource version of the moment of that change.
func instanceID(o Observed, hash string) string {
	policy := o.VM.Spec.CloudInit.InstanceIDPolicy
	if policy == v1.InstanceIDStable {
		return string(o.VM.UID)
	}
	if o.CloudInit != nil {
		there := o.CloudInit.Annotations
		same := there[AnnotationCloudInit] == hash
		if policy == v1.InstanceIDPerResourceVersion {
			same = there[AnnotationGeneration] == generation(o.VM)
		}
		if same && there[AnnotationInstance] != "" {
			return there[AnnotationInstance]
		}
	}
	return "v" + o.VM.ResourceVersion
}

// CloudInitSecret returns the Secret with the data. Its annotations say what the instance-id was chosen for: the status
// cannot, because writing it changes the resource version from which an instance-id is taken.
func (s *State) CloudInitSecret() *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: s.ObjectMeta(CloudInitName(s.VM.Name)), Type: corev1.SecretTypeOpaque, Data: s.CloudInit.Files}
	secret.Annotations = map[string]string{
		AnnotationCloudInit: s.CloudInit.Hash, AnnotationInstance: s.CloudInit.InstanceID, AnnotationGeneration: generation(s.VM),
	}
	if s.VM.Spec.CloudInit.InstanceIDPolicy != v1.InstanceIDPerResourceVersion {
		delete(secret.Annotations, AnnotationGeneration)
	}
	return secret
}

func generation(vm *v1.VirtualMachine) string { return strconv.FormatInt(vm.Generation, 10) }

// linksDisks returns whether the guest gets /dev/<disk> by cloud-init.
func linksDisks(vm *v1.VirtualMachine) bool {
	return vm.Spec.CloudInit != nil && ptr.Deref(vm.Spec.CloudInit.DiskLinks, true)
}

func isURL(medium string) bool { return strings.Contains(medium, "://") }
