package kubevirt

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// report is an instance whose status is being changed in virt-handler's way.
type report struct {
	instance *unstructured.Unstructured
	plan     plan
}

// phase returns the phase of the instance.
func (r *report) phase() string {
	phase, _, _ := unstructured.NestedString(r.instance.Object, "status", "phase")
	return phase
}

// status returns the status of the instance, which may be changed.
func (r *report) status() map[string]any {
	status, ok := r.instance.Object["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		r.instance.Object["status"] = status
	}
	return status
}

// enter reports a phase and when it began.
func (r *report) enter(phase string) {
	status := r.status()
	status["phase"] = phase
	transitions, _ := status["phaseTransitionTimestamps"].([]any)
	status["phaseTransitionTimestamps"] = append(transitions, map[string]any{
		"phase": phase, "phaseTransitionTimestamp": time.Now().UTC().Format(time.RFC3339),
	})
}

// run reports a guest that runs, with the address of its launcher pod.
func (r *report) run(podAddress string) {
	if r.phase() != Running {
		r.enter(Running)
	}
	status := r.status()
	if info, _ := status["guestOSInfo"].(map[string]any); len(info) == 0 {
		status["guestOSInfo"] = map[string]any{
			"id": "debian", "name": "Debian GNU/Linux", "prettyName": "Debian GNU/Linux 13 (trixie)", "versionId": "13",
		}
	}
	status["selinuxContext"] = "none" // without it, virt-controller plugs in no volumes
	r.volumes()
	r.interfaces(podAddress)
	r.condition("AgentConnected", "True", "", "")
	if shared := r.sharedVolumes(); shared {
		r.condition("LiveMigratable", "True", "", "")
	} else {
		r.condition("LiveMigratable", "False", "DisksNotLiveMigratable",
			"cannot migrate VMI: a PVC is not shared, live migration requires that all PVCs must be shared")
	}
}

// volumes reports where the guest sees its volumes, also those that are plugged in or out while it runs.
func (r *report) volumes() {
	volumes, _ := r.status()["volumeStatus"].([]any)
	specified := map[string]bool{}
	for _, volume := range r.list("spec", "volumes") {
		name, _ := volume["name"].(string)
		specified[name] = true
	}
	for i, item := range volumes {
		volume, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _ := volume["name"].(string)
		switch {
		case volume["hotplugVolume"] == nil && volume["target"] == "":
			volume["target"] = "vd" + string(rune('a'+i%26))
		case volume["hotplugVolume"] == nil:
		case !specified[name]:
			volume["phase"], volume["reason"] = "UnMountedFromPod", "VolumeUnMountedFromPod"
		case volume["phase"] == "AttachedToNode":
			volume["phase"], volume["reason"] = "Ready", "VolumeReady"
			volume["message"] = fmt.Sprintf("Successfully attach hotplugged volume %s to VM", name)
			volume["target"] = "sd" + string(rune('a'+i%26))
		}
	}
}

// sharedVolumes reports whether another node could use all claims of the guest at the same time.
func (r *report) sharedVolumes() bool {
	for _, volume := range r.list("status", "volumeStatus") {
		info, ok := volume["persistentVolumeClaimInfo"].(map[string]any)
		if !ok {
			continue
		}
		if modes, _ := info["accessModes"].([]any); !slices.Contains(modes, any("ReadWriteMany")) {
			return false
		}
	}
	return true
}

// interfaces reports the interfaces of the guest in the order of the specification. What virt-controller has said about
// one is kept.
func (r *report) interfaces(podAddress string) {
	known := map[string]map[string]any{}
	for _, seen := range r.list("status", "interfaces") {
		name, _ := seen["name"].(string)
		known[name] = seen
	}
	onPod := map[string]bool{}
	for _, network := range r.list("spec", "networks") {
		name, _ := network["name"].(string)
		onPod[name] = network["pod"] != nil
	}
	var interfaces []any
	for _, specified := range r.list("spec", "domain", "devices", "interfaces") {
		name, _ := specified["name"].(string)
		seen := known[name]
		if seen == nil {
			seen = map[string]any{"name": name}
		}
		mac, _ := specified["macAddress"].(string)
		if mac == "" {
			mac = invented("02:00:%02x:%02x:%02x:%02x", string(r.instance.GetUID()), name)
		}
		seen["mac"], seen["linkState"], seen["queueCount"] = mac, "up", int64(1)
		seen["infoSource"], seen["interfaceName"] = "domain, guest-agent", fmt.Sprintf("eth%d", len(interfaces))
		addresses := r.plan.addresses[name]
		switch {
		case len(addresses) > 0:
		case onPod[name] && podAddress != "":
			addresses = []string{podAddress}
		case !onPod[name]:
			addresses = []string{invented("10.%d.%d.%d", "", mac)}
		}
		setAddresses(seen, addresses, r.plan.addressesHeld)
		interfaces = append(interfaces, seen)
	}
	r.status()["interfaces"] = interfaces
}

func setAddresses(seen map[string]any, addresses []string, held bool) {
	delete(seen, "ipAddress")
	delete(seen, "ipAddresses")
	if held || len(addresses) == 0 {
		seen["infoSource"] = "domain"
		return
	}
	var all []any
	for _, address := range addresses {
		all = append(all, address)
	}
	seen["ipAddress"], seen["ipAddresses"] = addresses[0], all
}

// invented returns an address that is always the same for the same texts. The format takes its first bytes.
func invented(format, a, b string) string {
	hash := fnv.New64a()
	hash.Write([]byte(a + "/" + b))
	sum := hash.Sum(nil)
	var bytes []any
	for _, c := range format {
		if c == '%' {
			bytes = append(bytes, sum[len(bytes)])
		}
	}
	return fmt.Sprintf(format, bytes...)
}

// condition reports a condition. The transition time changes with the status only.
func (r *report) condition(name, status, reason, message string) {
	condition := map[string]any{"type": name, "status": status}
	if reason != "" {
		condition["reason"], condition["message"] = reason, message
	}
	now := time.Now().UTC().Format(time.RFC3339)
	conditions, _ := r.status()["conditions"].([]any)
	for i, item := range conditions {
		old, ok := item.(map[string]any)
		if !ok || old["type"] != name {
			continue
		}
		if old["status"] == status {
			return
		}
		condition["lastTransitionTime"], condition["lastProbeTime"] = now, now
		conditions[i] = condition
		return
	}
	condition["lastTransitionTime"], condition["lastProbeTime"] = now, now
	r.status()["conditions"] = append(conditions, condition)
}

// withoutCondition takes back a condition.
func (r *report) withoutCondition(name string) {
	conditions, _ := r.status()["conditions"].([]any)
	r.status()["conditions"] = slices.DeleteFunc(conditions, func(item any) bool {
		condition, ok := item.(map[string]any)
		return ok && condition["type"] == name
	})
}

// list returns the objects of a list in the instance. They may be changed.
func (r *report) list(path ...string) []map[string]any {
	field, _, _ := unstructured.NestedFieldNoCopy(r.instance.Object, path...)
	items, _ := field.([]any)
	var objects []map[string]any
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			objects = append(objects, object)
		}
	}
	return objects
}
