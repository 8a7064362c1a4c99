package nodepod

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// hostImages is the directory of the host that has the cache of guest images.
const hostImages = "/var/lib/flatcar-kvm-images"

// imageContainer gets and verifies the guest image before the machine is started. Only this container may write to the
// cache of its host, so that an attacker who escapes a guest cannot change what other machines boot. It ends before any
// guest starts, and has only capabilities for files.
func imageContainer(s *state.Cluster, n state.Node) corev1.Container {
	return corev1.Container{
		Name:            nodestep.ImageContainer,
		Image:           s.Settings.RunnerImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            []string{"runner", "image"},
		Env:             literally(append(image(s), corev1.EnvVar{Name: "MAX_IMAGE_FILE", Value: s.Settings.Machine.MaxImageFile})),
		Resources:       Resources(s, n), // a pod takes the maximum of its containers
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			// Files of the cache, and images that an administrator put on the host, may have any owner.
			Capabilities:           &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_OVERRIDE", "FOWNER"}},
			ReadOnlyRootFilesystem: ptr.To(true),
			SeccompProfile:         &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeImages, MountPath: Images}},
	}
}

// image says which guest image to boot: the user's, otherwise Flatcar.
func image(s *state.Cluster) []corev1.EnvVar {
	var env []corev1.EnvVar
	if directories := s.Settings.Machine.ImageDirectories; len(directories) > 0 {
		env = append(env, corev1.EnvVar{Name: "IMAGE_DIRECTORIES", Value: strings.Join(directories, ",")})
	}
	if s.Config.Spec.GuestImage != nil {
		description, err := json.Marshal(s.Config.Spec.GuestImage)
		if err == nil {
			return append(env, corev1.EnvVar{Name: "GUEST_IMAGE", Value: string(description)})
		}
	}
	env = append(env, corev1.EnvVar{Name: "FLATCAR_CHANNEL", Value: s.Settings.FlatcarChannel},
		corev1.EnvVar{Name: "FLATCAR_VERSION", Value: s.Versions.ContainerLinux})
	if mirror := s.Settings.FlatcarMirror; mirror != "" {
		env = append(env, corev1.EnvVar{Name: "FLATCAR_MIRROR", Value: mirror})
	}
	return env
}
