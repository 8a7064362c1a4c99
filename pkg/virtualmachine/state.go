package virtualmachine

import (
	"cmp"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// Settings are the operator's settings for virtual machines.
type Settings struct {
	// RunnerImage is the image of runners for VirtualMachines that name none.
	RunnerImage string
	// AllowedImages are the images, or repositories of images, that VirtualMachines may name. A runner may be privileged,
	// so others are ignored.
	AllowedImages []string
	// AllowEmulation allows machines to be emulated in software. Otherwise a machine without KVM does not start.
	AllowEmulation bool
	// DeviceResources are extended resources of device plugins that provide the devices of a machine. Without them, a
	// pod whose machine may use KVM is privileged.
	DeviceResources []string
	// DataStorageClass is the StorageClass of the claim for firmware variables; nil means the default.
	DataStorageClass *string
	// ImageRepository is the name of the claim with images for CDs, in the namespace of each VirtualMachine; empty for
	// none.
	ImageRepository string
	// LoadBalancer has displays reached by Services of type LoadBalancer; nil means that they are not.
	LoadBalancer *LoadBalancer
	// Bridges are the bridges of hosts that VirtualMachines may be connected to. The pod of such a machine is in the
	// network of its host.
	Bridges []string
	// ExtraArgs allows spec.vm.extraArgs, with which a user can give the guest any file of the container.
	ExtraArgs bool
}

// Observed is what was read. Nothing of it is changed.
type Observed struct {
	VM *v1.VirtualMachine
	// StatefulSet and Pod are nil if they do not exist.
	StatefulSet *appsv1.StatefulSet
	Pod         *corev1.Pod
	// CloudInit is the Secret with the cloud-init data; nil if there is none.
	CloudInit *corev1.Secret
	// Displays are the Secrets with the labels of the password of the machine's display. Their content is not read.
	Displays []metav1.ObjectMeta
	// Claims are those with the names of the machine's claims, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Link is about the runner of Pod.
	Link     Link
	Settings Settings
	Now      time.Time
}

// State is what is known and decided of a virtual machine.
type State struct {
	Observed

	// Disks are the persistent disks.
	Disks []Disk
	// Machine and Live are what the runner gets.
	Machine vmconfig.Machine
	Live    vmconfig.Live
	// CloudInit is nil if the machine has no cloud-init data.
	CloudInit *CloudInit
	// Display is how the display is protected.
	Display Display
	// KeepMedia says that CDs are files and the operator has none.
	KeepMedia bool
	// Err says which part of the declaration cannot be carried out.
	Err error
}

// Plan decides what follows from what was observed. It is pure.
func Plan(o Observed) *State {
	s := &State{Observed: o, Disks: disksOf(o.VM), CloudInit: cloudInitOf(o)}
	var media []string
	s.Machine, media = machineOf(o.VM, s.Disks)
	s.Machine.Networks = networksOf(o.VM.Spec.VM, o.Settings.Bridges)
	media, missing := available(media, o.Settings.ImageRepository)
	display, ambiguous := displayOf(o)
	s.Display, s.Err, s.KeepMedia = display, errors.Join(missing, ambiguous, s.forbidden()), missing != nil
	if m := s.Machine.Display; m != nil && m.SPICE != nil {
		m.SPICE.Password = display.hasPassword()
	}
	if o.Settings.ExtraArgs {
		s.Machine.ExtraArgs = o.VM.Spec.VM.ExtraArgs
	}
	s.Live = liveOf(o.VM, s.Machine, media)
	return s
}

// Wanted returns whether the virtual machine is to run.
func (s *State) Wanted() bool { return s.VM.Spec.VM.State == v1.StateRunning }

// Places are where the objects of the virtual machine lie.
func (s *State) Places() apply.Places { return apply.Places{Namespaces: []string{s.VM.Namespace}} }

// ObjectMeta returns the metadata of an object in the namespace of the virtual machine, which is garbage-collected with
// it.
func (s *State) ObjectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.VM.Namespace, Name: name, Labels: Labels(s.VM.Name),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine", Name: s.VM.Name, UID: s.VM.UID,
			Controller: ptr.To(true),
		}},
	}
}

// ConfigMap returns the content of the ConfigMap.
func (s *State) ConfigMap() (map[string]string, error) {
	people, err := configFile(s.Machine, s.Live)
	if err != nil {
		return nil, err
	}
	live, err := s.Live.Encode()
	return map[string]string{vmconfig.ConfigName: string(people), vmconfig.LiveName: live}, err
}

// machineOf returns the part of a machine that needs a restart to change, and the media of its CD drives.
func machineOf(vm *v1.VirtualMachine, disks []Disk) (vmconfig.Machine, []string) {
	spec := vm.Spec.VM
	m := vmconfig.Machine{
		Name: vm.Name, UUID: ptr.Deref(spec.MachineUUID, string(vm.UID)), Type: cmp.Or(ptr.Deref(spec.MachineType, ""), vm.Status.MachineType), Acceleration: string(spec.Acceleration), Firmware: string(spec.Firmware),
		BootMenu: spec.BootMenu, TPM: spec.UseTPM, CPUModel: spec.CPUModel, MaximumCPUs: int(maximumCPUs(spec)), MaximumRAM: whole(spec.MaximumRAM),
		RTCBase: spec.RTCBase, RTCClock: spec.RTCClock, CloudInit: vm.Spec.CloudInit != nil, DiskLinks: linksDisks(vm),
	}
	if t := spec.CPUTopology; t != nil {
		m.Topology = vmconfig.Topology{Sockets: int(ptr.Deref(t.Sockets, 0)), Dies: int(t.DiesPerSocket), Cores: int(t.CoresPerDie), Threads: int(t.ThreadsPerCore)}
	}
	var media []string
	m.Drives, media = drivesOf(vm, disks)
	if d := spec.Display; d != nil {
		m.Display = &vmconfig.Display{Outputs: int(d.Outputs)}
		if d.SPICE != nil {
			m.Display.SPICE = &vmconfig.SPICE{Port: int(d.SPICE.Port), USBRedirects: int(ptr.Deref(d.SPICE.USBRedirects, 0)), StreamingVideo: string(d.SPICE.StreamingVideo)}
		}
	}
	return m, media
}

// Started returns what can change of the machine as it is in its pod.
func (s *State) Started() vmconfig.Live {
	if s.Pod != nil {
		if live, err := vmconfig.ParseLive([]byte(s.Pod.Annotations[AnnotationLive])); err == nil {
			return live
		}
	}
	return s.Live
}

func maximumCPUs(spec v1.VM) int32 {
	if t := spec.CPUTopology; t != nil {
		return max(ptr.Deref(t.Sockets, 1), 1) * max(t.DiesPerSocket, 1) * max(t.CoresPerDie, 1) * max(t.ThreadsPerCore, 1)
	}
	return ptr.Deref(spec.MaximumCPUs, 1)
}

const mib = 1 << 20

// whole returns a size in bytes, rounded up to a MiB because QEMU takes no less. The API server admits only sizes that
// can be parsed.
func whole(size string) int64 {
	q, err := resource.ParseQuantity(size)
	if err != nil {
		return mib
	}
	return (q.Value() + mib - 1) / mib * mib
}

// liveOf returns the part of a machine that can change while it runs. CPUs and RAM default to the maximum.
func liveOf(vm *v1.VirtualMachine, m vmconfig.Machine, media []string) vmconfig.Live {
	l := vmconfig.Live{
		CurrentCPUs: m.MaximumCPUs, CurrentRAM: m.MaximumRAM, PowerdownTimeout: int(vm.Spec.VM.PowerdownTimeout),
		GuestShutdownStops: vm.Spec.GuestShutdownStops, Media: media,
	}
	if n := vm.Spec.VM.CurrentCPUs; n != nil {
		l.CurrentCPUs = min(int(*n), m.MaximumCPUs)
	}
	if size := vm.Spec.VM.CurrentRAM; size != nil {
		l.CurrentRAM = min(whole(*size), m.MaximumRAM)
	}
	return l
}

// available returns the media that can be used; the other drives stay empty.
func available(media []string, repository string) ([]string, error) {
	var usable []string
	var errs []error
	for _, medium := range media {
		if medium != "" && !isURL(medium) && repository == "" {
			errs = append(errs, problem.Newf("NoImageRepository",
				"the image %q of a CD is a file, and the operator has no repository of images: set service.virtualmachine.imagerepository to the name of a claim that has it", medium))
			medium = ""
		}
		usable = append(usable, medium)
	}
	return usable, errors.Join(errs...)
}

// Ignored returns what in the declaration has no effect.
func (s *State) Ignored() []string {
	spec := s.VM.Spec
	var notes []string
	for _, n := range []struct {
		there bool
		text  string
	}{
		{spec.RunnerTemplate != nil && spec.RunnerTemplate.Source != "", "runnerTemplate: this operator builds QEMU's command line itself"},
		{spec.LoggingProperties != "", "loggingProperties: the runner is not written in Java"},
		{len(spec.Permissions) > 0, "permissions: there is no web interface; use RBAC"},
		{len(spec.Pools) > 0, "pools: there are none"},
		{
			spec.LoadBalancerService != nil && len(spec.LoadBalancerService.Labels)+len(spec.LoadBalancerService.Annotations) > 0 && s.Service() == nil,
			"loadBalancerService: the operator's setting service.virtualmachine.loadbalancer is off, the display has no password or shares the pod with a guest that has its address, and is served inside the pod alone, or the machine's name begins with a digit",
		},
		{spec.VM.Display != nil && spec.VM.Display.LoggedInUser != "", "vm.display.loggedInUser: there is no automatic login"},
		{len(spec.VM.ExtraArgs) > 0 && !s.Settings.ExtraArgs, "vm.extraArgs: the operator's setting service.virtualmachine.extraargs does not allow it"},
		{
			s.Machine.Has(vmconfig.NetworkTap) && s.Machine.Has(vmconfig.NetworkUser),
			"vm.networks: cards of type user lead nowhere beside one of type tap, because the pod is in the network of its host",
		},
		{s.ReplacesImage(), "image: the operator's own is used, because service.virtualmachine.allowedimages does not allow this one"},
	} {
		if n.there {
			notes = append(notes, n.text)
		}
	}
	return notes
}
