package virtualmachine

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// status returns the whole status that follows from a run of the chain.
func status(s *virtualmachine.State, results []chain.Result) v1.VirtualMachineStatus {
	next := *s.VM.Status.DeepCopy()
	next.ObservedGeneration, next.Phase = s.VM.Generation, s.Phase()
	next.Node, next.PodIP = "", ""
	if s.Pod != nil {
		next.Node, next.PodIP = s.Pod.Spec.NodeName, s.Pod.Status.PodIP
	}
	next.CPUs, next.RAM, next.Accelerator = has(s)
	next.DisplayPasswordSerial, next.ConsoleClient = viewed(s)
	next.OSInfo, next.MachineType, next.RunnerVersion = osInfo(s), s.MachineType(), s.RunnerVersion()
	next.InstanceID = ""
	if secret := s.Observed.CloudInit; secret != nil && s.CloudInit != nil {
		next.InstanceID = secret.Annotations[virtualmachine.AnnotationInstance]
	}
	next.Disks = nil
	for _, d := range s.Disks {
		next.Disks = append(next.Disks, v1.DiskStatus{Name: d.Name, Claim: d.Claim, Device: "/dev/" + d.Name, Size: s.DiskSize(d)})
	}
	next.Conditions = conditions(s, results)
	return next
}

// has returns what the running machine has. While that is not known, because the operator has just started, it is what
// was known before, or what the machine was started with.
func has(s *virtualmachine.State) (cpus int32, ram, accelerator string) {
	if !s.Serves() {
		return 0, "0", ""
	}
	if n, bytes, known := s.Has(); known {
		return bounded(n), resource.NewQuantity(bytes, resource.BinarySI).String(), s.Accelerator()
	}
	if before := s.VM.Status; before.CPUs > 0 {
		return before.CPUs, before.RAM, before.Accelerator
	}
	started := s.Started()
	return bounded(started.CurrentCPUs), resource.NewQuantity(started.CurrentRAM, resource.BinarySI).String(), ""
}

// osInfo returns what the guest agent says. While the operator has no link with the runner, it is what was known
// before.
func osInfo(s *virtualmachine.State) *runtime.RawExtension {
	info := s.OS()
	if info == nil {
		if s.Serves() && s.Link.Report == nil {
			return s.VM.Status.OSInfo
		}
		return nil
	}
	// As a map, because the API server sorts the fields, and what differs from it is written again.
	var fields map[string]any
	encoded, err := json.Marshal(info)
	if err == nil {
		err = json.Unmarshal(encoded, &fields)
	}
	if err == nil {
		encoded, err = json.Marshal(fields)
	}
	if err != nil {
		return nil
	}
	return &runtime.RawExtension{Raw: encoded}
}

// viewed returns how often the password of the display was set, and who is connected. While that is not known, it is
// what was known before.
func viewed(s *virtualmachine.State) (serial int64, client string) {
	if n, host, known := s.DisplayReported(); known {
		return int64(n), host
	}
	if !s.Serves() {
		return 0, ""
	}
	return s.VM.Status.DisplayPasswordSerial, s.VM.Status.ConsoleClient
}

// bounded returns a number of CPUs that the API admits.
func bounded(cpus int) int32 {
	const most = 288
	return int32(min(max(cpus, 0), most))
}

// tell logs what has changed.
func tell(ctx context.Context, before, after *v1.VirtualMachine) {
	logger := log.FromContext(ctx)
	if before.Status.Phase != after.Status.Phase {
		logger.Info("phase changed", "from", before.Status.Phase, "to", after.Status.Phase)
	}
	for _, c := range after.Status.Conditions {
		known := meta.FindStatusCondition(before.Status.Conditions, c.Type)
		if known == nil || known.Status != c.Status || known.Reason != c.Reason {
			logger.Info("condition changed", "type", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
		}
	}
}
