package virtualmachine

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

const (
	// Binary is the operator's own binary in the runner's image.
	Binary           = "/opt/kvm-operator/kvm-operator"
	volumeConfig     = "config"
	volumeCloudInit  = "cloud-init"
	volumeDisplay    = "display"
	volumeState      = "state"
	volumeRepository = "vmop-image-repository"

	// graceBeyond is how much longer than the guest's own time the pod may take to end, in seconds: until QEMU quits or
	// is killed.
	graceBeyond = 30
)

// Template returns the pod template. Its annotation AnnotationMachine changes whenever a running machine has to be
// restarted to be as declared.
func (s *State) Template() (corev1.PodTemplateSpec, error) {
	container, err := s.container()
	if err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	parts, err := s.annotateParts()
	if err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	live, err := s.Live.Encode()
	if err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	annotations := map[string]string{AnnotationMachine: parts, AnnotationLive: live}
	if s.CloudInit != nil {
		annotations[AnnotationCloudInit] = s.CloudInit.Hash
	}
	if version := s.displayVersion(); version != "" {
		annotations[AnnotationDisplay] = version
	}
	spec := s.VM.Spec
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: Labels(s.VM.Name, map[string]string{LabelComponent: Runner}), Annotations: annotations},
		Spec: corev1.PodSpec{
			Affinity:                      spec.Affinity,
			AutomountServiceAccountToken:  ptr.To(false),
			Containers:                    []corev1.Container{container},
			EnableServiceLinks:            ptr.To(false),
			HostNetwork:                   s.Machine.Has(vmconfig.NetworkTap),
			NodeName:                      spec.NodeName,
			NodeSelector:                  s.selectedLabels(),
			TerminationGracePeriodSeconds: ptr.To(int64(s.Live.PowerdownTimeout + graceBeyond)),
			Volumes:                       s.volumes(),
		},
	}, nil
}

// selectedLabels returns the labels that a node must have.
func (s *State) selectedLabels() map[string]string {
	wanted := s.VM.Spec.NodeSelector
	if wanted == nil {
		return nil
	}
	labels := make(map[string]string, len(wanted))
	for name, value := range wanted {
		labels[name] = string(value)
	}
	return labels
}

func (s *State) container() (corev1.Container, error) {
	machine, err := s.Machine.Encode()
	if err != nil {
		return corev1.Container{}, err
	}
	c := corev1.Container{
		Name:            s.VM.Name,
		Image:           s.image(),
		ImagePullPolicy: s.pullPolicy(),
		Args:            []string{"runner", "vm"},
		// The kubelet expands $(NAME), and $$ stands for a dollar sign.
		Env: []corev1.EnvVar{{Name: vmconfig.Variable, Value: strings.ReplaceAll(machine, "$", "$$")}},
		// A pod is Ready while its machine runs. A guest that shut down is down, whatever its runner does.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{Binary, "runner", "status"}}},
			PeriodSeconds: 5, TimeoutSeconds: 5, FailureThreshold: 3, SuccessThreshold: 1,
		},
		Resources:       s.resources(),
		SecurityContext: s.securityContext(),
		VolumeMounts:    s.mounts(),
	}
	if d := s.Machine.Display; d != nil && d.SPICE != nil && s.Machine.Has(vmconfig.NetworkTap) {
		// The scheduler finds a host where the port is free.
		port := int32(d.SPICE.Port) //nolint:gosec // G115: the API server checks it
		c.Ports = []corev1.ContainerPort{{Name: servicePort, ContainerPort: port, HostPort: port, Protocol: corev1.ProtocolTCP}}
	}
	if s.Settings.AllowEmulation {
		c.Env = append(c.Env, corev1.EnvVar{Name: "ALLOW_EMULATION", Value: "true"})
	}
	for _, d := range s.Disks {
		c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: d.Name, DevicePath: "/dev/" + d.Name})
	}
	return c, nil
}

// image returns the runner's image. One that is not allowed is replaced by the operator's own. VM-Operator's runners,
// which old manifests name, do not understand this operator.
func (s *State) image() string {
	named := namedImage(s.VM.Spec.Image)
	if named == "" || s.ReplacesImage() {
		return s.Settings.RunnerImage
	}
	return named
}

// ReplacesImage returns whether the declared image is not allowed.
func (s *State) ReplacesImage() bool {
	named := namedImage(s.VM.Spec.Image)
	return named != "" && named != s.Settings.RunnerImage && !slices.ContainsFunc(s.Settings.AllowedImages, func(allowed string) bool { return allows(allowed, named) })
}

// allows returns whether an image is the allowed one, or one of an allowed repository. What follows a repository is a
// tag or a digest, or the rest of a path: after "registry", ":5000/image" is another registry. Nothing follows an image that
// has a tag: a digest behind it would count instead of the tag.
func allows(allowed, named string) bool {
	rest, ok := strings.CutPrefix(named, allowed)
	if !ok || rest == "" {
		return ok
	}
	slash := strings.LastIndex(allowed, "/")
	chosen := strings.ContainsAny(allowed[slash+1:], ":@")
	if rest[0] == '/' {
		return !chosen || slash < 0 // a registry with its port
	}
	return !chosen && strings.ContainsAny(rest[:1], ":@") && !strings.Contains(rest, "/")
}

// namedImage returns the declared image; empty if there is none.
func namedImage(i *v1.Image) string {
	switch {
	case i == nil:
		return ""
	case i.Repository == nil:
		return ptr.Deref(i.Source, "")
	}
	image := *i.Repository + "/" + ptr.Deref(i.Path, "")
	if version := ptr.Deref(i.Version, ""); version != "" {
		image += ":" + version
	}
	return image
}

func (s *State) pullPolicy() corev1.PullPolicy {
	if i := s.VM.Spec.Image; i != nil {
		return cmp.Or(i.PullPolicy, corev1.PullIfNotPresent)
	}
	return corev1.PullIfNotPresent
}

// overhead is the memory that the runner and QEMU need besides the guest's, in bytes, and screen what they need for each
// monitor; with emulation, QEMU keeps up to 1 GiB of translated code.
const (
	overhead  = 256 << 20
	screen    = 64 << 20
	emulation = 1 << 30
)

// resources returns what the user declares, or what the machine needs. A machine may always use its whole memory, and
// it is killed if its limit is less than that, so there is no limit by default.
func (s *State) resources() corev1.ResourceRequirements {
	var r corev1.ResourceRequirements
	if declared := s.VM.Spec.Resources; declared != nil {
		r = corev1.ResourceRequirements{Limits: v1.List(declared.Limits), Requests: v1.List(declared.Requests)}
	} else {
		memory := s.Live.CurrentRAM + overhead
		if d := s.Machine.Display; d != nil && d.SPICE != nil {
			memory += int64(max(1, d.Outputs)) * screen
		}
		if s.Settings.AllowEmulation {
			memory += emulation
		}
		r.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(s.Live.CurrentCPUs)*500, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		}
	}
	for _, name := range s.devices() {
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[corev1.ResourceName(name)] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return r
}

// needsDevices returns whether the machine needs devices of its host: /dev/kvm, or /dev/net/tun for a card that is
// connected to something outside of QEMU.
func (s *State) needsDevices() bool {
	return s.Machine.Acceleration != string(v1.AccelerationTCG) || s.connects()
}

// devices are the resources of device plugins that the machine needs.
func (s *State) devices() []string {
	if !s.needsDevices() {
		return nil
	}
	return s.Settings.DeviceResources
}

// capabilities let the runner run QEMU as another user, without capabilities.
var capabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"}

// securityContext is privileged only if the machine needs devices of its host that no device plugin provides.
func (s *State) securityContext() *corev1.SecurityContext {
	if s.needsDevices() && len(s.devices()) == 0 {
		return &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	add := slices.Clone(capabilities)
	if s.connects() {
		add = append(add, "NET_ADMIN") // interfaces
	}
	if s.Machine.Has(vmconfig.NetworkPod) {
		add = append(add, "NET_RAW") // answers to the guest's requests for addresses
	}
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func (s *State) volumes() []corev1.Volume {
	list := []corev1.Volume{
		{Name: volumeConfig, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: s.VM.Name}, DefaultMode: ptr.To[int32](0o444),
		}}},
		{Name: volumeState, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)}}},
	}
	if s.CloudInit != nil {
		list = append(list, corev1.Volume{Name: volumeCloudInit, VolumeSource: corev1.VolumeSource{Projected: s.cloudInitSources()}})
	}
	if s.Display.Secret != "" {
		// A machine whose Secret was deleted starts, with a display that is locked.
		list = append(list, corev1.Volume{Name: volumeDisplay, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: s.Display.Secret, DefaultMode: ptr.To[int32](0o400), Optional: ptr.To(true),
		}}})
	}
	if s.mountsRepository() {
		list = append(list, corev1.Volume{Name: volumeRepository, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: s.Settings.ImageRepository, ReadOnly: true,
		}}})
	}
	return list
}

// cloudInitSources are the operator's Secret and those that the user named.
func (s *State) cloudInitSources() *corev1.ProjectedVolumeSource {
	source := &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o400), Sources: []corev1.VolumeProjection{{
		Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: CloudInitName(s.VM.Name)}},
	}}}
	for _, name := range vmconfig.CloudInitFiles {
		if from, ok := s.CloudInit.From[name]; ok {
			source.Sources = append(source.Sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: from.Name}, Items: []corev1.KeyToPath{{Key: from.Key, Path: name}},
			}})
		}
	}
	return source
}

func (s *State) mountsRepository() bool {
	return s.Settings.ImageRepository != "" && s.Machine.CDs() > 0
}

func (s *State) mounts() []corev1.VolumeMount {
	list := []corev1.VolumeMount{
		{Name: volumeConfig, MountPath: vmconfig.ConfigDirectory, ReadOnly: true},
		{Name: volumeState, MountPath: vmconfig.StateDirectory},
	}
	if s.CloudInit != nil {
		list = append(list, corev1.VolumeMount{Name: volumeCloudInit, MountPath: vmconfig.CloudInitDirectory, ReadOnly: true})
	}
	if s.Display.Secret != "" {
		list = append(list, corev1.VolumeMount{Name: volumeDisplay, MountPath: vmconfig.DisplayDirectory, ReadOnly: true})
	}
	if s.keepsData() {
		list = append(list, corev1.VolumeMount{Name: RunnerData, MountPath: vmconfig.DataDirectory})
	}
	if s.mountsRepository() {
		list = append(list, corev1.VolumeMount{Name: volumeRepository, MountPath: vmconfig.ImageRepository, ReadOnly: true})
	}
	return list
}
