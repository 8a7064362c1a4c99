package smolvmruntime

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// strangerOn starts another smolvm on a socket, which is in order and knows none of the agent's machines.
func strangerOn(t *testing.T, path string) (end func()) {
	t.Helper()
	stranger := exec.Command(os.Args[0], path)
	stranger.Env = append(os.Environ(), childVariable+"=smolvm")
	stranger.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }
	t.Cleanup(end)
	c := clientOf(t, path)
	eventually(t, "the stranger answers", func() bool { _, err := c.Health(t.Context()); return err == nil })
	return end
}

// TestAnotherSmolvmHasTheSocket: the agent says so, and passes nothing on: for the stranger, all machines are missing.
func TestAnotherSmolvmHasTheSocket(t *testing.T) {
	makeNode(t, direct(t), "taken")
	path := socketFor(t)
	end := strangerOn(t, path)
	r := runAgent(t, "taken", func(s *Settings) { s.Socket, s.Command[1] = path, path })
	node := &v1alpha1.SmolVMNode{}
	eventually(t, "the SmolVMNode says why it is not ready", func() bool {
		if r.admin.Get(t.Context(), client.ObjectKey{Name: "taken"}, node) != nil {
			return false
		}
		c := meta.FindStatusCondition(node.Status.Conditions, v1alpha1.ConditionRuntimeReady)
		return c != nil && c.Status == "False" && strings.Contains(c.Message, "another server answers there")
	})
	c := r.controller(t, node)
	for range 20 { // also while a child of the agent is being started
		if _, err := c.Create(t.Context(), api.CreateRequest{Name: "m", Image: "alpine"}); api.CodeOf(err) != api.CodeUnavailable {
			t.Fatalf("a machine was asked of the stranger: %v", err)
		}
	}
	if all, err := clientOf(t, path).List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("the stranger has %v: %v", all, err)
	}
	end()
	r.ready(t)
	if _, err := c.Create(t.Context(), api.CreateRequest{Name: "m", Image: "alpine"}); err != nil {
		t.Error(err)
	}
}

// TestAScriptMayStartSmolvm: then smolvm is the child of the agent's child.
func TestAScriptMayStartSmolvm(t *testing.T) {
	makeNode(t, direct(t), "script")
	script := filepath.Join(t.TempDir(), "start")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntrap 'kill $!; wait' TERM\n\"$@\" &\nwait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := runAgent(t, "script", func(s *Settings) { s.Command = append([]string{script}, s.Command...) })
	r.ready(t)
}

func TestDescent(t *testing.T) {
	self, above := os.Getpid(), os.Getppid()
	for sentence, test := range map[string]struct {
		pid, ancestor int
		want          bool
	}{
		"the process itself":            {self, self, true},
		"its parent":                    {self, above, true},
		"its child":                     {above, self, false},
		"a process that cannot be seen": {0, self, false},
		"one that has ended":            {1 << 30, self, false},
		"the first process":             {1, self, false},
	} {
		if got := descends(test.pid, test.ancestor); got != test.want {
			t.Errorf("%s: %t", sentence, got)
		}
	}
}
