package stage

import (
	"context"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/ocifixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// SmolVMImage is the image that SmolVMs of a Stage boot from: a web server of busybox. There is no other, since the hosts
// have no Internet.
const SmolVMImage = "web:1"

// serveImages serves the images of SmolVMs to the hosts, as a mirror of docker.io.
func (s *Stage) serveImages(ctx context.Context) error {
	web, err := ocifixture.Web()
	if err != nil {
		return err
	}
	registry, err := ocifixture.Serve(map[string]v1.Image{"library/" + SmolVMImage: web}, nil)
	if err != nil {
		return err
	}
	s.registry = registry
	listener, err := s.Cluster.Listen(ctx, "tcp", s.Cluster.Address()+":0")
	if err != nil {
		return err
	}
	registry.ServeAlso(listener)
	s.options.Values = append(s.options.Values, smolVMValues(listener.Addr().String(), s.Cluster.Node(0).Cgroup())...)
	return nil
}

// smolVMValues are the values of the chart by which hosts of workers run SmolVMs. cgroup is one that goes with the cluster, and
// with it all machines.
func smolVMValues(registry, cgroup string) []string {
	return []string{
		"smolvm.enabled=true", "smolvm.allowEmulation=true", "smolvm.cgroupParent=" + cgroup + "/smolvm",
		"smolvm.nodeSelector." + key.LabelManagementNodesRole + "=" + key.RoleWorker,
		`smolvm.registries.mirrors.` + strings.ReplaceAll("docker.io", ".", `\.`) + "=" + registry, "smolvm.registries.insecure={" + registry + "}",
	}
}
