package cloudconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/types"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// BootData are the two halves of a node's Ignition config, spec version 3.3.0. Each is valid by itself and they have no
// path in common.
//
// 3.3.0 is the oldest version that has everything needed; later additions (special mode bits, LUKS and Tang options)
// are not needed by a node, and an older version works with more images.
type BootData struct {
	// Public contains no secret.
	Public types.Config
	// Private contains files with secrets.
	Private types.Config
}

// builders build a config, in this order.
var builders = []func(Params) parts{
	// The operating system comes first: nothing of the cluster is needed to log in and investigate.
	system, access, proxy, iscsi,
	// Disks and shares, which runtime and kubelet must find in place.
	storage,
	// What is found out only after boot, and binaries that the image lacks.
	nodeEnvironment, binaries,
	// Certificates, before the components that read them.
	certificates,
	containerd, kubelet,
	// The control plane: static pods of the kubelet. Each is empty on workers.
	precedence, etcdMember, apiServer, controllers, controllerManager, scheduler,
}

// Render renders the boot data of a node. An error names what in the Params is wrong or missing, or the path of the
// config that Ignition would reject; it never contains a secret.
func Render(p Params) (BootData, error) {
	data, err := unchecked(p)
	if err != nil {
		return BootData{}, err
	}
	return data, data.check()
}

// unchecked renders boot data that Ignition has not checked yet.
func unchecked(p Params) (BootData, error) {
	if err := check(p); err != nil {
		return BootData{}, err
	}
	return build(p)
}

// check validates both halves together, which also finds a path that both of them define. Whatever is valid in the
// whole is valid in its half.
func (d BootData) check() error {
	whole := d.Public
	whole.Storage.Files = append(append([]types.File{}, d.Public.Storage.Files...), d.Private.Storage.Files...)
	return validate(whole)
}

func build(p Params) (BootData, error) {
	var all parts
	for _, add := range builders {
		all.add(add(p))
	}
	public, err := all.public()
	if err != nil {
		return BootData{}, err
	}
	private, err := all.private()
	return BootData{Public: public, Private: private}, err
}

// validate uses Ignition's own validator.
func validate(config types.Config) error {
	raw, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encoding the Ignition config: %w", err)
	}
	_, report, err := v3_3.Parse(raw)
	if err == nil {
		return nil
	}
	var reasons []string
	for _, entry := range report.Entries {
		if entry.Kind.IsFatal() {
			reasons = append(reasons, fmt.Sprintf("%s: %s", subject(config, entry.Context.Path), entry.Message))
		}
	}
	return fmt.Errorf("ignition would refuse the config: %w: %s", err, strings.Join(reasons, "; "))
}

// subject names the file, unit or user that a path into the config refers to, which is what a user can act on.
func subject(config types.Config, path []any) string {
	if len(path) >= 3 {
		index, _ := path[2].(int)
		switch path[1] {
		case "files":
			return config.Storage.Files[index].Path
		case "units":
			return config.Systemd.Units[index].Name
		case "users":
			return "user " + config.Passwd.Users[index].Name
		}
	}
	return fmt.Sprint(path...)
}

// Hash returns the hash of what makes a running node outdated: both halves, without what only a founding or joining
// node reads. A running node has its certificate and its place in etcd, and neither a new bootstrap token nor another
// set of founding members changes anything for it.
func Hash(p Params) (string, error) {
	p.BootstrapToken = "000000.0000000000000000"
	p.EtcdState, p.EtcdFoundingToken, p.EtcdFrom = EtcdNew, "", ""
	p.EtcdMembers = []Member{{Name: pki.EtcdMember(p.Node.ID), PeerURL: "https://" + p.Node.ID + ".invalid:2380"}}
	if err := check(p); err != nil {
		return "", err
	}
	data, err := build(p)
	if err != nil {
		return "", err
	}
	// The hash is over the JSON, not the encoded form, because another release of Go may compress to other bytes.
	raw, err := json.Marshal(data)
	if err != nil {
		return "", fmt.Errorf("encoding the Ignition config: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}
