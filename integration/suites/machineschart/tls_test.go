package machineschart_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/integration/harness/helmchart"
)

// TestMetricsByTLS: the operator reads the Secret where it is mounted, and Prometheus checks the name of the Service.
func TestMetricsByTLS(t *testing.T) {
	_, byName := documents(t, render(t, "--set=metrics.tls.secretName=own,serviceMonitor.enabled=true"))
	deployment := appsv1.Deployment{}
	helmchart.Decode(t, []byte(byName["Deployment "+manager]), &deployment)
	pod := deployment.Spec.Template.Spec
	volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "own" })
	if volume < 0 {
		t.Fatalf("the volumes are %v", pod.Volumes)
	}
	container := pod.Containers[0]
	path := slices.IndexFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == flag.MachinesVariable(flag.MachinesMetricsCerts) })
	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == pod.Volumes[volume].Name })
	if path < 0 || mount < 0 || container.VolumeMounts[mount].MountPath != container.Env[path].Value || !container.VolumeMounts[mount].ReadOnly {
		t.Errorf("the variables are %v and the mounts %v", container.Env, container.VolumeMounts)
	}
	service, monitor := corev1.Service{}, unstructured.Unstructured{}
	helmchart.Decode(t, []byte(byName["Service "+manager+"-metrics"]), &service)
	helmchart.Decode(t, []byte(byName["ServiceMonitor "+manager+"-metrics"]), &monitor.Object)
	if scheme := service.Annotations["prometheus.io/scheme"]; scheme != "https" {
		t.Errorf("the Service has the scheme %q", scheme)
	}
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	if err != nil || len(endpoints) != 1 {
		t.Fatalf("the ServiceMonitor has the endpoints %v, %v", endpoints, err)
	}
	endpoint := unstructured.Unstructured{Object: endpoints[0].(map[string]any)}
	for path, want := range map[string]string{
		"scheme": "https", "tlsConfig.ca.secret.name": "own", "tlsConfig.ca.secret.key": "ca.crt",
		"tlsConfig.serverName": service.Name + "." + service.Namespace + ".svc",
	} {
		if got, _, err := unstructured.NestedString(endpoint.Object, strings.Split(path, ".")...); err != nil || got != want {
			t.Errorf("the ServiceMonitor has %s %q (%v), want %q", path, got, err, want)
		}
	}
}

func TestTheSecretIsNotMountedWithoutMetrics(t *testing.T) {
	if text := render(t, "--set=metrics.tls.secretName=pair-of-metrics,metrics.enabled=false,serviceMonitor.enabled=true"); strings.Contains(text, "pair-of-metrics") || strings.Contains(text, "CERT_PATH") {
		t.Errorf("the objects are\n%s", text)
	}
}
