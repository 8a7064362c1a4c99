package chart_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// development is the part of okteto.yml with the permissions of the development container.
type development struct {
	SecurityContext oktetoSecurity `json:"securityContext"`
}

type oktetoSecurity struct {
	RunAsUser                *int64 `json:"runAsUser"`
	RunAsGroup               *int64 `json:"runAsGroup"`
	FSGroup                  *int64 `json:"fsGroup"`
	RunAsNonRoot             *bool  `json:"runAsNonRoot"`
	ReadOnlyRootFilesystem   *bool  `json:"readOnlyRootFilesystem"`
	AllowPrivilegeEscalation *bool  `json:"allowPrivilegeEscalation"`
	Capabilities             *struct {
		Add, Drop []corev1.Capability
	} `json:"capabilities"`
}

// merge changes a pod as okteto does: in the pod it only sets the group of volumes, and in the container it sets the
// given fields. See TranslatePodSecurityContext and TranslateContainerSecurityContext in okteto's
// pkg/k8s/apps/translate.go.
func (o oktetoSecurity) merge(pod *corev1.PodSpec) {
	if o.FSGroup != nil {
		pod.SecurityContext.FSGroup = o.FSGroup
	}
	c := pod.Containers[0].SecurityContext
	set(&c.RunAsUser, o.RunAsUser)
	set(&c.RunAsGroup, o.RunAsGroup)
	set(&c.RunAsNonRoot, o.RunAsNonRoot)
	set(&c.ReadOnlyRootFilesystem, o.ReadOnlyRootFilesystem)
	set(&c.AllowPrivilegeEscalation, o.AllowPrivilegeEscalation)
	if o.Capabilities != nil {
		c.Capabilities.Add = append(c.Capabilities.Add, o.Capabilities.Add...)
		c.Capabilities.Drop = append(c.Capabilities.Drop, o.Capabilities.Drop...)
	}
}

func set[T any](to **T, value *T) {
	if value != nil {
		*to = value
	}
}

// refusedByKubelet returns why the kubelet does not start a container, or an empty string when it does. See
// verifyRunAsNonRoot in Kubernetes' pkg/kubelet/kuberuntime/security_context.go: the container's settings override the
// pod's.
func refusedByKubelet(pod *corev1.PodSpec) string {
	c := pod.Containers[0].SecurityContext
	user, nonRoot := pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsNonRoot
	set(&user, c.RunAsUser)
	set(&nonRoot, c.RunAsNonRoot)
	if nonRoot != nil && *nonRoot && user != nil && *user == 0 {
		return "container's runAsUser breaks non-root policy"
	}
	return ""
}

// TestDevelopmentContainerStarts in place of the chart's container: Go writes below /root, /go and /tmp, and the
// debugger traces.
func TestDevelopmentContainerStarts(t *testing.T) {
	text, err := os.ReadFile("../../../okteto.yml")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Dev map[string]development }
	decode(t, []byte(strings.ReplaceAll(string(text), "$VERSION", project.Version())), &manifest)
	merged := func(o oktetoSecurity) *corev1.PodSpec {
		pod := parse(t, render(t)).deployment.Spec.Template.Spec
		o.merge(&pod)
		return &pod
	}
	asked := manifest.Dev[release].SecurityContext
	pod := merged(asked)
	if why := refusedByKubelet(pod); why != "" {
		t.Errorf("the kubelet refuses it: %s", why)
	}
	c := pod.Containers[0].SecurityContext
	if *c.RunAsUser != 0 || *c.ReadOnlyRootFilesystem || !slices.Contains(c.Capabilities.Add, "SYS_PTRACE") {
		t.Errorf("Go cannot build or the debugger cannot trace in it: %+v", c)
	}
	asked.RunAsNonRoot = nil
	if refusedByKubelet(merged(asked)) == "" {
		t.Error("the kubelet does not mind a container that is root where the chart says that none may be, so this test proves nothing")
	}
}

// TestSourcesAreSentWithoutWhatIsBuilt: files that git ignores, and git's own files, are not sent.
func TestSourcesAreSentWithoutWhatIsBuilt(t *testing.T) {
	sent, err := os.ReadFile("../../../.stignore")
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := os.ReadFile("../../../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	left := strings.Fields(string(sent))
	for _, name := range append(strings.Fields(string(ignored)), ".git") {
		if !slices.Contains(left, strings.Trim(name, "/")) {
			t.Errorf(".stignore does not have %s", name)
		}
	}
}
