package virtualmachine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// partMachine is the part of a pod template that describes the machine.
const partMachine = "vm"

// parts returns a hash of each part of a pod template that needs a restart to change, by the name of the field in the
// spec of a VirtualMachine. What the API server or others add to a pod is in none of them.
func (s *State) parts() (map[string]string, error) {
	spec, parts := s.VM.Spec, map[string]string{}
	for name, value := range map[string]any{
		partMachine: s.declared(s.Machine), "image": []string{s.image(), string(s.pullPolicy())}, "resources": spec.Resources, "nodeName": spec.NodeName,
		"nodeSelector": spec.NodeSelector, "affinity": spec.Affinity,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		parts[name] = hex.EncodeToString(sum[:6])
	}
	if s.mountsRepository() {
		parts["imageRepository"] = s.Settings.ImageRepository
	}
	if s.Display.Secret != "" {
		parts["displaySecret"] = s.Display.Secret
	}
	if s.CloudInit != nil {
		parts["cloudInit"] = s.CloudInit.Hash
	}
	return parts, nil
}

// declared returns a machine without a type that the user has not declared: that of the first start is no change.
func (s *State) declared(m vmconfig.Machine) vmconfig.Machine {
	if s.VM.Spec.VM.MachineType == nil {
		m.Type = ""
	}
	return m
}

// annotateParts returns the value of AnnotationMachine.
func (s *State) annotateParts() (string, error) {
	parts, err := s.parts()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(parts)
	return string(text), err
}

// RestartFor returns the fields whose changes take effect only when the machine starts the next time. There are none
// for a machine that does not run.
func (s *State) RestartFor() []string {
	if s.Pod == nil || s.Pod.DeletionTimestamp != nil || !s.Wanted() {
		return nil
	}
	wanted, err := s.parts()
	var there map[string]string
	if err != nil || json.Unmarshal([]byte(s.Pod.Annotations[AnnotationMachine]), &there) != nil {
		return nil
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[name] == there[name] {
			continue
		}
		if name == partMachine {
			fields = append(fields, s.changedOfMachine()...)
			continue
		}
		fields = append(fields, name)
	}
	for name := range there {
		if _, ok := wanted[name]; !ok {
			fields = append(fields, name)
		}
	}
	if s.Live.PowerdownTimeout > s.Started().PowerdownTimeout {
		// The pod was created with a grace period for less.
		fields = append(fields, "vm.powerdownTimeout")
	}
	slices.Sort(fields)
	return fields
}

// changedOfMachine returns the fields below spec.vm that differ from the machine of the pod.
func (s *State) changedOfMachine() []string {
	there, err := vmconfig.Decode(machineOfPod(s.Pod, s.VM.Name))
	if err != nil {
		return []string{partMachine}
	}
	var fields []string
	for _, name := range vmconfig.Difference(s.declared(there), s.declared(s.Machine)) {
		fields = append(fields, "vm."+name)
	}
	return fields
}

func machineOfPod(pod *corev1.Pod, container string) string {
	for _, c := range pod.Spec.Containers {
		for _, e := range c.Env {
			if c.Name == container && e.Name == vmconfig.Variable {
				return strings.ReplaceAll(e.Value, "$$", "$")
			}
		}
	}
	return ""
}
