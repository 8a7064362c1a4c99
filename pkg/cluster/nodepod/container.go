package nodepod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Paths inside the runner's container.
const (
	// PublicBootData and PrivateBootData are the directories with the two halves of the boot data.
	PublicBootData  = "/cloudconfig"
	PrivateBootData = "/cloudconfig-private"
	// UserData is the name of the file, and of the key of ConfigMap and Secret, with boot data.
	UserData = "user_data"
	// EtcdData is the directory that the guest mounts by the tag "etcdshare".
	EtcdData = "/etc/kubernetes/data/etcd"
	// Images is the cache of guest images, shared by all node pods of a host unless they may have no directory of it.
	// Machines see it read-only.
	Images = "/usr/code/images"
	// Disks is the directory with the guest's disks.
	Disks = "/usr/code/rootfs"
	// Binary is the operator's own binary, which is also the runner.
	Binary = "/opt/kvm-operator/kvm-operator"
)

// EtcdDisk is the size of the disk with etcd's data: the quota of its database, 8 GiB, with log and snapshots. It takes
// no space until it is written.
const EtcdDisk = "12G"

func container(s *state.Cluster, n state.Node) corev1.Container {
	return corev1.Container{
		Name:            nodestep.Container,
		Image:           s.Settings.RunnerImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            []string{"runner"},
		Env:             environment(s, n),
		// There is no liveness probe: the runner itself kills a QEMU that does not respond, and a probe would stop a
		// healthy machine on a host that is too busy to respond in time.
		ReadinessProbe:  probe(10, 10, 4),
		Resources:       MachineResources(s, n),
		SecurityContext: securityContext(s.Settings.Machine),
		VolumeMounts:    mounts(n),
	}
}

// probe returns a probe that asks the runner by exec, because the guest has taken over the pod's address, so nothing
// answers there for the pod.
func probe(delay, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{Binary, "runner", "status"},
		}},
		InitialDelaySeconds: delay,
		PeriodSeconds:       period,
		TimeoutSeconds:      5,
		FailureThreshold:    failures,
		SuccessThreshold:    1,
	}
}

// environment returns the variables by which the runner learns of its machine: those of the original's runner and a few
// new ones.
func environment(s *state.Cluster, n state.Node) []corev1.EnvVar {
	disks := key.NodeDisks(n.Role, n.Machine)
	env := []corev1.EnvVar{
		{Name: "HOSTNAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		{Name: "ROLE", Value: n.Role},
		{Name: "CORES", Value: fmt.Sprint(n.Machine.CPUs)},
		{Name: "MEMORY", Value: fmt.Sprintf("%dM", key.GuestMemory(n.Memory()))},
		{Name: "DISK_OS", Value: disks.OS},
		{Name: "DISK_DOCKER", Value: disks.Container},
		{Name: "DISK_KUBELET", Value: disks.Kubelet},
		{Name: "DNS_SERVERS", Value: strings.Join(s.Settings.DNSServers, ",")},
		{Name: "NTP_SERVERS", Value: strings.Join(s.Settings.Guest.NTPServers, ",")},
		{Name: "CLOUD_CONFIG_PATH", Value: PublicBootData + "/" + UserData},
		{Name: "CLOUD_CONFIG_PRIVATE_PATH", Value: PrivateBootData + "/" + UserData},
		{Name: "HOLD_TIMEOUT", Value: HoldPeriod.String()},
		{Name: "ACCELERATION", Value: string(s.Config.Spec.KVM.K8sKVM.Acceleration)},
	}
	env = append(append(env, image(s)...), machine(s.Settings.Machine)...)
	if s.Settings.ForeignSources { // otherwise left out, so that no running pod is outdated
		env = append(env, corev1.EnvVar{Name: "FOREIGN_SOURCES", Value: "true"})
	}
	if n.Role == key.RoleMaster {
		env = append(env, corev1.EnvVar{Name: "ETCD_DATA_PATH", Value: EtcdData}, corev1.EnvVar{Name: "ETCD_DISK", Value: EtcdDisk},
			corev1.EnvVar{Name: "API_PORT", Value: fmt.Sprint(s.Cluster().Kubernetes.API.SecurePort)})
	} else {
		env = append(env, corev1.EnvVar{Name: "HOST_DATA_VOLUME_PATHS", Value: volumePaths(n)})
	}
	return literally(append(env, network(s, n)...))
}

// literally makes the kubelet pass on values as they are: it expands $(NAME), and $$ stands for a dollar sign.
func literally(env []corev1.EnvVar) []corev1.EnvVar {
	for i := range env {
		env[i].Value = strings.ReplaceAll(env[i].Value, "$", "$$")
	}
	return env
}

// machine tells the runner what the operator's settings allow. What is not allowed is left out, because that is the
// default.
func machine(settings state.MachineSettings) []corev1.EnvVar {
	var env []corev1.EnvVar
	if settings.AllowEmulation {
		env = append(env, corev1.EnvVar{Name: "ALLOW_EMULATION", Value: "true"})
	}
	if settings.NestedVirtualization {
		env = append(env, corev1.EnvVar{Name: "NESTED_VIRTUALIZATION", Value: "true"})
	}
	return env
}

// volumePaths lists the host volumes as tag:path, separated by commas.
func volumePaths(n state.Node) string {
	var pairs []string
	for _, v := range n.HostVolumes() {
		pairs = append(pairs, v.MountTag+":"+v.HostPath)
	}
	return strings.Join(pairs, ",")
}
