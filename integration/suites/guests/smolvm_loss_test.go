package guests_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// powerLoss: all processes of the node end at once. What was written stays, and the machine starts with its node.
func powerLoss(s *smolStage) {
	before := s.get("web")
	powerCut(s.t, s.node)
	s.isSilent("web")
	if left := s.machines(s.cluster.Node(0)); len(left) > 0 {
		s.t.Errorf("the other node has %v", left)
	}
	s.say("the node is off")
	boot(s.t, s.node)
	after := s.runs("web")
	s.listens(webPort, true)
	s.has("web", "disk")
	if after.Status.NodeUID != before.Status.NodeUID || after.Status.StartTime.Equal(before.Status.StartTime) {
		s.t.Errorf("the node is %s and was %s, and the machine was started at %s", after.Status.NodeUID, before.Status.NodeUID, after.Status.StartTime)
	}
	s.qemu("web")
	s.mark("web")
}

// registersAgain: the object of the node is another one, and the node is the same. The machine belongs to it from then on.
func registersAgain(s *smolStage) {
	before := s.get("web").Status.NodeUID
	s.undisturbed("the node is registered again", func() {
		s.stopKubelet()
		s.kubectl("delete", "node", s.node.Name())
		s.startKubelet()
		s.nodeUIDDiffers(before)
	})
}

// nodeUIDDiffers waits until a SmolVM has the UID that its node has now, which is another one.
func (s *smolStage) nodeUIDDiffers(before types.UID) {
	s.t.Helper()
	lab.Eventually(s.t, smolPatience, func() error {
		node := nodeObject(s.node)
		if err := s.lab.Client.Get(s.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		if has := s.get("web").Status.NodeUID; node.UID == before || has != node.UID {
			return fmt.Errorf("the node is %s and was %s, and the SmolVM has %s", node.UID, before, has)
		}
		return nil
	})
}

// replaced: a node of the same name has registered, and has nothing of the former one.
func replaced(s *smolStage) {
	s.lose("NodeReplaced", func() { s.kubectl("delete", "node", s.node.Name()) })
}

// missing: the node is the same, and its disk is empty.
func missing(s *smolStage) {
	s.lose("MachineMissing", func() {})
}

// lose has the second node lose all that it has of SmolVMs. The machine is lost, which the SmolVM says, and nothing is made
// until the annotation asks for it. Then it is there with empty disks, and the annotation is not.
func (s *smolStage) lose(reason string, meanwhile func()) {
	s.t.Helper()
	s.mark("web")
	s.stopKubelet()
	s.empty()
	meanwhile()
	s.startKubelet()
	lost := "LocalStateLost=True/" + reason
	s.is("web", v1alpha1.PhaseUnknown, lost, "Ready=False/"+reason, "Reconciled=False/"+reason)
	s.shows("web", reason, v1alpha1.AnnotationRecreate)
	s.serves()
	s.is("web", v1alpha1.PhaseUnknown, lost) // still, although the runtime could make it
	if left := slices.Concat(s.machines(s.cluster.Node(0)), s.machines(s.node)); len(left) > 0 {
		s.t.Errorf("there are %v", left)
	}
	s.listens(webPort, false)
	s.say("the machine is lost")
	s.annotate("web", v1alpha1.AnnotationRecreate)
	vm := s.runs("web")
	s.has("web", "")
	s.listens(webPort, true)
	if uid := s.kubectl("get", "node", s.node.Name(), "--output=jsonpath={.metadata.uid}"); string(vm.Status.NodeUID) != uid {
		s.t.Errorf("the node of the machine is %s, want %s", vm.Status.NodeUID, uid)
	}
	lab.Eventually(s.t, patience, func() error {
		if _, there := s.get("web").Annotations[v1alpha1.AnnotationRecreate]; there {
			return errors.New("the annotation also holds the next time")
		}
		return nil
	})
}

// uninstalled: with the chart, machines are powered down, and nothing but their disks is left; the next one brings them
// back.
func uninstalled(s *smolStage) {
	s.mark("web")
	vm := s.get("web")
	helm := exec.CommandContext(s.t.Context(), filepath.Join(tools, "helm"), "uninstall", smolRelease, "--namespace="+smolNamespace, "--kubeconfig="+s.cluster.Kubeconfig(), "--wait", "--timeout=4m")
	if err := s.cluster.Run(helm); err != nil {
		s.t.Fatal(err)
	}
	s.kubectl("--namespace="+smolNamespace, "wait", "--for=delete", "pods", "--all", "--timeout=180s")
	for _, program := range []string{"qemu-system-x86_64", "smolvm", "kvm-operator"} {
		if left := s.processes(program); len(left) > 0 {
			s.t.Errorf("%v is left on the node", left)
		}
	}
	s.listens(webPort, false)
	if left := s.machines(s.node); !slices.Equal(left, []string{directoryOf(vm) + "/"}) {
		s.t.Errorf("the disks of the node are %v", left)
	}
	if again := s.get("web"); again.UID != vm.UID || again.DeletionTimestamp != nil {
		s.t.Errorf("the SmolVM is %+v", again)
	}
	s.say("nothing but the disk is left")
	s.install(s.values...)
	after := s.runs("web")
	s.listens(webPort, true)
	s.has("web", "disk")
	if after.Status.MachineName != vm.Status.MachineName {
		s.t.Errorf("the machine is %s and was %s", after.Status.MachineName, vm.Status.MachineName)
	}
	s.delete("web")
	s.gone("web")
	s.listens(webPort, false)
	if left := s.machines(s.node); len(left) > 0 {
		s.t.Errorf("the node has %v", left)
	}
	if out, err := s.node.Exec(s.t.Context(), "sh", "-c", "ls -d /sys/fs/cgroup/*"+s.cluster.Node(0).Cgroup()+"/smolvm/*/ /sys/fs/cgroup"+s.cluster.Node(0).Cgroup()+"/smolvm/*/ 2>/dev/null || true"); err != nil || strings.TrimSpace(out) != "" {
		s.t.Errorf("there are the cgroups %s: %v", out, err)
	}
}
