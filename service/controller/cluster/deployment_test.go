package cluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

func deploymentOf(t *testing.T, rendered []Rendered, name string) *appsv1.Deployment {
	t.Helper()
	return one[*appsv1.Deployment](t, rendered, "deployment", name)
}

// environment returns the environment variables of the runner's container; a variable from a field has "$" and the path
// of the field.
func environment(d *appsv1.Deployment) map[string]string {
	env := map[string]string{}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			env[e.Name] = "$" + e.ValueFrom.FieldRef.FieldPath
		}
	}
	return env
}

func TestEachNodeHasItsDeployment(t *testing.T) {
	var got []string
	for _, object := range objects(t, must(t, renderedFull), "deployment") {
		got = append(got, object.GetNamespace()+"/"+object.GetName())
	}
	want := []string{
		"full1/master-m0aaa", "full1/master-m1aaa", "full1/master-m2aaa",
		"full1/worker-w0aaa", "full1/worker-w1aaa", "full1/worker-w2aaa", "full1/worker-w3aaa", "full1/worker-w4aaa",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other Deployments (-want +got):\n%s", diff)
	}
}

func TestDeploymentReplicasAndSelector(t *testing.T) {
	d := deploymentOf(t, must(t, renderedFull), "worker-w0aaa")
	selector := map[string]string{"app": "worker", "cluster": "full1", "node": "w0aaa"}
	annotations := map[string]string{"giantswarm.io/release-version": "20.0.0", "giantswarm.io/version-bundle-version": "4.0.0"}
	got := []any{*d.Spec.Replicas, d.Spec.Strategy, d.Spec.Selector.MatchLabels, missing(annotations, d.Annotations)}
	want := []any{int32(1), appsv1.DeploymentStrategy{Type: "Recreate"}, selector, map[string]string{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDeploymentPodMetadata covers labels and annotations by which other software recognizes node pods.
func TestDeploymentPodMetadata(t *testing.T) {
	template := deploymentOf(t, must(t, renderedFull), "master-m0aaa").Spec.Template
	labels := map[string]string{
		"app": "master", "cluster": "full1", "customer": "acme", "giantswarm.io/cluster": "full1", "giantswarm.io/organization": "acme", "node": "m0aaa",
		"kvm-operator.giantswarm.io/pod-watcher": "kvm-operator", "kvm-operator.giantswarm.io/version": "4.0.0",
	}
	annotations := map[string]string{
		"kvm-operator.giantswarm.io/api-endpoint": "api.full1.k8s.example.org", "endpoint.kvm.giantswarm.io/service": "master",
		"endpoint.kvm.giantswarm.io/drained": "False", "kvm-operator.giantswarm.io/version-bundle": "4.0.0",
		"kvm-operator.giantswarm.io/component-version-calico":         "3.30.0",
		"kvm-operator.giantswarm.io/component-version-containerlinux": "4459.2.1",
		"kvm-operator.giantswarm.io/component-version-etcd":           "3.6.5",
		"kvm-operator.giantswarm.io/component-version-kubernetes":     "1.35.4",
	}
	if diff := cmp.Diff(labels, template.Labels); diff != "" {
		t.Errorf("other labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{}, missing(annotations, template.Annotations)); diff != "" {
		t.Errorf("annotations of the original are missing (+missing):\n%s", diff)
	}
}

func TestDeploymentPodSpec(t *testing.T) {
	type pod struct {
		HostNetwork, Privileged bool
		NodeSelector            map[string]string
		Grace                   int64
		Gates                   []corev1.PodReadinessGate
		Container, Pull         string
		CPU, Memory             string
		Disk, DiskLimit, Files  string
	}
	describe := func(d *appsv1.Deployment) pod {
		spec := d.Spec.Template.Spec
		c := spec.Containers[0].DeepCopy()
		disk := func(list corev1.ResourceList) string {
			size := list[corev1.ResourceEphemeralStorage]
			delete(list, corev1.ResourceEphemeralStorage)
			return size.String()
		}
		requested, limit := disk(c.Resources.Requests), disk(c.Resources.Limits)
		if diff := cmp.Diff(c.Resources.Requests, c.Resources.Limits); diff != "" {
			t.Errorf("%s: requests are not limits:\n%s", d.Name, diff)
		}
		return pod{
			spec.HostNetwork, *c.SecurityContext.Privileged, spec.NodeSelector, *spec.TerminationGracePeriodSeconds, spec.ReadinessGates,
			c.Name, string(c.ImagePullPolicy), c.Resources.Limits.Cpu().String(), c.Resources.Limits.Memory().String(),
			requested, limit, scratch(spec).String(),
		}
	}
	gate := []corev1.PodReadinessGate{{ConditionType: "kvm-operator.giantswarm.io/workload-cluster-node-ready"}}
	want := map[string]pod{
		"master-m0aaa": {false, true, map[string]string{"role": "master"}, 2592600, nil, "k8s-kvm", "IfNotPresent", "2", "4373Mi", "60Gi", "65Gi", "64Gi"},
		"worker-w0aaa": {false, true, map[string]string{"role": "worker"}, 2592600, gate, "k8s-kvm", "IfNotPresent", "2", "4373Mi", "60Gi", "65Gi", "64Gi"},
		"worker-w2aaa": {false, true, map[string]string{"role": "worker"}, 2592600, gate, "k8s-kvm", "IfNotPresent", "8", "31332Mi", "205Gi", "222464Mi", "221440Mi"},
	}
	got := map[string]pod{}
	for name := range want {
		got[name] = describe(deploymentOf(t, must(t, renderedFull), name))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other pods (-want +got):\n%s", diff)
	}
}

// scratch returns the size limit of the directory with a machine's disks.
func scratch(spec corev1.PodSpec) *resource.Quantity {
	for _, v := range spec.Volumes {
		if v.Name == "rootfs" {
			return v.EmptyDir.SizeLimit
		}
	}
	return nil
}

// TestMachinesReadTheImagesOfTheirHostOnly: the container that writes images ends before a guest starts, and is
// unprivileged.
func TestMachinesReadTheImagesOfTheirHostOnly(t *testing.T) {
	for _, object := range objects(t, must(t, renderedFull), "deployment") {
		d := object.(*appsv1.Deployment)
		spec := d.Spec.Template.Spec
		writers := map[string]bool{}
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			for _, m := range c.VolumeMounts {
				if m.MountPath == "/usr/code/images" {
					writers[c.Name] = !m.ReadOnly
				}
			}
		}
		if diff := cmp.Diff(map[string]bool{"image": true, "k8s-kvm": false}, writers); diff != "" {
			t.Errorf("%s: who writes images (-want +got):\n%s", d.Name, diff)
		}
		c := spec.InitContainers[0]
		if c.RestartPolicy != nil || c.SecurityContext.Privileged != nil || *c.SecurityContext.AllowPrivilegeEscalation ||
			!slices.Equal(c.SecurityContext.Capabilities.Add, []corev1.Capability{"DAC_OVERRIDE", "FOWNER"}) || !slices.Contains(c.SecurityContext.Capabilities.Drop, "ALL") || len(c.VolumeMounts) != 1 {
			t.Errorf("%s: the container that gets images has %+v and %+v", d.Name, c.SecurityContext, c.VolumeMounts)
		}
	}
}

// TestDiskRequestIsASetting: an installation may overcommit the storage of its hosts. The limits stay.
func TestDiskRequestIsASetting(t *testing.T) {
	for percent, want := range map[int]string{0: "0", 50: "30Gi", 100: "60Gi"} {
		s := simple()
		s.settings.Machine.DiskRequestPercent = percent
		r := deploymentOf(t, s.render(t), "worker-w0aaa").Spec.Template.Spec.Containers[0].Resources
		if got := [2]string{r.Requests.StorageEphemeral().String(), r.Limits.StorageEphemeral().String()}; got != [2]string{want, "65Gi"} {
			t.Errorf("%d percent: request and limit are %v, want %s and 65Gi", percent, got, want)
		}
	}
}

// TestMachinesOfAClusterAreKeptApart: one machine of a cluster per host, unless the settings allow shared hosts.
func TestMachinesOfAClusterAreKeptApart(t *testing.T) {
	apart, shared := simple(), simple()
	shared.settings.SharedHosts = true
	count := func(s scenario) [2]int {
		anti := deploymentOf(t, s.render(t), "worker-w0aaa").Spec.Template.Spec.Affinity.PodAntiAffinity
		return [2]int{len(anti.RequiredDuringSchedulingIgnoredDuringExecution), len(anti.PreferredDuringSchedulingIgnoredDuringExecution)}
	}
	if diff := cmp.Diff([][2]int{{1, 0}, {0, 1}}, [][2]int{count(apart), count(shared)}); diff != "" {
		t.Errorf("required and preferred terms (-want +got):\n%s", diff)
	}
	term := deploymentOf(t, apart.render(t), "worker-w0aaa").Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	got := []any{term.TopologyKey, term.Namespaces, term.LabelSelector.MatchExpressions[0].Key, term.LabelSelector.MatchExpressions[0].Values}
	if diff := cmp.Diff([]any{"kubernetes.io/hostname", []string{"ab1cd"}, "app", []string{"master", "worker"}}, got); diff != "" {
		t.Errorf("another term (-want +got):\n%s", diff)
	}
}

// TestDeploymentEnvironment covers the variables of the original's runner; MEMORY is in MiB, equal to the quantity.
func TestDeploymentEnvironment(t *testing.T) {
	want := map[string]map[string]string{
		"master-m0aaa": {
			"HOSTNAME": "$metadata.name", "ROLE": "master", "CORES": "2", "MEMORY": "3814M", "DISK_OS": "5G", "DISK_DOCKER": "50G", "DISK_KUBELET": "5G",
			"DNS_SERVERS": "10.0.0.2,10.0.0.3", "NTP_SERVERS": "ntp.example.org", "CLOUD_CONFIG_PATH": "/cloudconfig/user_data",
			"FLATCAR_CHANNEL": "stable", "FLATCAR_VERSION": "4459.2.1",
		},
		"worker-w1aaa": {"ROLE": "worker", "HOST_DATA_VOLUME_PATHS": "data1:/data/one,images:/data/two"},
		"worker-w2aaa": {"CORES": "8", "MEMORY": "30517M", "DISK_DOCKER": "100G", "DISK_KUBELET": "100G", "HOST_DATA_VOLUME_PATHS": ""},
		"worker-w3aaa": {"DISK_DOCKER": "40G", "DISK_KUBELET": "40G"},
	}
	for name, env := range want {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(map[string]string{}, missing(env, environment(deploymentOf(t, must(t, renderedFull), name)))); diff != "" {
				t.Errorf("other variables (+missing):\n%s", diff)
			}
		})
	}
}

// TestDeploymentVolumes covers where the data of a machine is.
func TestDeploymentVolumes(t *testing.T) {
	source := func(v corev1.Volume) string {
		switch {
		case v.HostPath != nil:
			return "host " + v.HostPath.Path
		case v.PersistentVolumeClaim != nil:
			return "claim " + v.PersistentVolumeClaim.ClaimName
		case v.ConfigMap != nil:
			return "config " + v.ConfigMap.Name
		case v.Secret != nil:
			return "secret " + v.Secret.SecretName
		}
		return "scratch"
	}
	describe := func(d *appsv1.Deployment) map[string]string {
		volumes, paths := map[string]string{}, map[string]string{}
		for _, v := range d.Spec.Template.Spec.Volumes {
			volumes[v.Name] = source(v)
		}
		for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
			paths[m.MountPath] = volumes[m.Name]
		}
		return paths
	}
	got := map[string]map[string]string{
		"master on host":      describe(deploymentOf(t, must(t, renderedSimple), "master-m0aaa")),
		"master on volume":    describe(deploymentOf(t, must(t, renderedFull), "master-m1aaa")),
		"worker":              describe(deploymentOf(t, must(t, renderedSimple), "worker-w0aaa")),
		"worker with volumes": describe(deploymentOf(t, must(t, renderedFull), "worker-w1aaa")),
	}
	common := func(bootData string, more map[string]string) map[string]string {
		more["/cloudconfig"], more["/cloudconfig-private"] = "config "+bootData, "secret "+bootData
		more["/usr/code/images"], more["/usr/code/rootfs"] = "host /var/lib/flatcar-kvm-images", "scratch"
		return more
	}
	want := map[string]map[string]string{
		"master on host":   common("master-ab1cd-m0aaa", map[string]string{"/etc/kubernetes/data/etcd": "host " + key.EtcdHostPath("ab1cd", key.EtcdMark(mustKey(t)), "m0aaa")}),
		"master on volume": common("master-full1-m1aaa", map[string]string{"/etc/kubernetes/data/etcd": "claim pvc-master-etcd-full1-m1aaa"}),
		"worker":           common("worker-ab1cd-w0aaa", map[string]string{}),
		"worker with volumes": common("worker-full1-w1aaa", map[string]string{
			"/data/one": "claim local-pvc-worker-full1-w1aaa-data1", "/data/two": "claim local-pvc-worker-full1-w1aaa-images",
		}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other volumes (-want +got):\n%s", diff)
	}
}

// TestGuestImageOfTheSpecReplacesFlatcar: with spec.guestImage the runner gets that image and no Flatcar channel.
func TestGuestImageOfTheSpecReplacesFlatcar(t *testing.T) {
	s := simple()
	s.config.Spec.GuestImage = &v1alpha1.GuestImage{Name: "own", Kernel: v1alpha1.ImageFile{URL: "https://example.org/k"}, Initrd: v1alpha1.ImageFile{URL: "https://example.org/i"}}
	env := environment(deploymentOf(t, s.render(t), "master-m0aaa"))
	_, channel := env["FLATCAR_CHANNEL"]
	want := `{"name":"own","kernel":{"url":"https://example.org/k"},"initrd":{"url":"https://example.org/i"}}`
	if diff := cmp.Diff([]any{want, false}, []any{env["GUEST_IMAGE"], channel}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
