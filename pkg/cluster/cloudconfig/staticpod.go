package cloudconfig

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pace"
)

// manifestDirectory is where the kubelet of a master finds its static pods.
const manifestDirectory = "/etc/kubernetes/manifests"

// localhost is where the components of a master talk to each other and where the kubelet probes them.
const localhost = "127.0.0.1"

// precedence gives the control plane of a busy master its processors before the kubelet and the container runtime: by
// default these have 100 shares, and all pods of a machine with two processors have 59.
func precedence(p Params) parts {
	if !p.master() {
		return parts{}
	}
	return parts{files: []file{{
		path: "/etc/systemd/system/system.slice.d/10-kvm-operator.conf", mode: modePublic, text: "[Slice]\nCPUWeight=20\n",
	}}}
}

// component is a static pod of the control plane with one container.
type component struct {
	name    string
	image   string
	command []string
	env     []corev1.EnvVar
	mounts  []mount
	// cpu and memory are the requests; there is no limit, because nothing on a master is more important than these.
	cpu, memory string
	live, ready probe
	// private manifests contain a secret.
	private bool
	// waits says that the component starts once the API server of its machine is ready.
	waits bool
}

// mount is a path of the guest at the same place in the container.
type mount struct {
	name     string
	path     string
	kind     corev1.HostPathType
	writable bool
}

// probe is a path that is served over HTTP on localhost; the zero value means no probe.
type probe struct {
	path   string
	port   int32
	scheme corev1.URIScheme
}

// manifest is a Pod without status: the full type writes empty fields whose number changes with the library's version,
// and each change would roll every master.
type manifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        manifestMetadata `json:"metadata"`
	Spec            corev1.PodSpec   `json:"spec"`
}

type manifestMetadata struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
}

// file returns the manifest of the component.
func (c component) file(p Params) file {
	directory := manifestDirectory
	if c.waits {
		directory = waitingDirectory
	}
	rarer := p.slowness()
	container := corev1.Container{
		Name: c.name, Image: c.image, ImagePullPolicy: corev1.PullIfNotPresent, Command: c.command, Env: c.env,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(c.cpu), corev1.ResourceMemory: resource.MustParse(c.memory),
		}},
		// Three minutes, and fifteen to start. Under software emulation it is 27 and 45: a component of a busy machine
		// fails its probes for minutes while it works, and an API server that is killed for that starts over, with all
		// its clients.
		LivenessProbe:  c.live.every(10*rarer, 15, 18*rarer),
		StartupProbe:   c.live.every(10*rarer, 15, 90),
		ReadinessProbe: c.ready.every(5*rarer, 15, 3),
	}
	if p.Emulated {
		for _, variable := range pace.Emulated() {
			container.Env = append(container.Env, corev1.EnvVar{Name: variable.Name, Value: variable.Value})
		}
	}
	spec := corev1.PodSpec{
		HostNetwork: true,
		// The guest's resolver knows the names of the management cluster; the workload cluster's depends on these pods.
		DNSPolicy:         corev1.DNSDefault,
		PriorityClassName: "system-node-critical",
		SecurityContext:   &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
	}
	for _, m := range c.mounts {
		source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.path, Type: new(m.kind)}}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: m.name, VolumeSource: source})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: m.name, MountPath: m.path, ReadOnly: !m.writable})
	}
	spec.Containers = []corev1.Container{container}
	return file{
		path: directory + "/" + c.name + ".yaml", mode: modeSecret, private: c.private,
		object: manifest{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			Metadata: manifestMetadata{
				Name: c.name, Namespace: metav1.NamespaceSystem,
				Labels: map[string]string{"component": c.name, "tier": "control-plane"},
			},
			Spec: spec,
		},
	}
}

// every returns a probe with the given period that fails after that many failures; period and timeout are in seconds.
func (p probe) every(period, timeout, failures int32) *corev1.Probe {
	if p.path == "" {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host: localhost, Path: p.path, Port: intstr.FromInt32(p.port), Scheme: p.scheme,
		}},
		PeriodSeconds: period, TimeoutSeconds: timeout, FailureThreshold: failures,
	}
}

// directory mounts an existing directory, read-only.
func directory(name, path string) mount {
	return mount{name: name, path: path, kind: corev1.HostPathDirectory}
}

// single mounts an existing file, read-only.
func single(name, path string) mount { return mount{name: name, path: path, kind: corev1.HostPathFile} }
