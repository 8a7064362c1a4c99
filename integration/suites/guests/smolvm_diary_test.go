package guests_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// diary has what SmolVMs said of themselves, in order, and what none may ever say.
type diary struct {
	mu sync.Mutex
	// nodes are those of SmolVMs, and lost are those whose local state is lost: true once their annotation was seen since.
	nodes map[types.UID]string
	lost  map[types.UID]bool
	// said are the conditions of SmolVMs, by their names: Type=Status/Reason, where they changed.
	said map[string][]string
	// wrong is what never may be.
	wrong []string
}

// keepDiary watches all SmolVMs until the end of the test, which fails if one moves, or if a machine whose state is lost is
// there again without the annotation.
func keepDiary(t *testing.T, c *realcluster.Cluster) *diary {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	reader, err := client.NewWithWatch(c.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	events, err := reader.Watch(ctx, &v1alpha1.SmolVMList{})
	if err != nil {
		t.Fatal(err)
	}
	d := &diary{nodes: map[types.UID]string{}, lost: map[types.UID]bool{}, said: map[string][]string{}}
	var done sync.WaitGroup
	done.Go(func() {
		for e := range events.ResultChan() {
			d.note(e)
		}
		if ctx.Err() == nil {
			d.refuse("the watch of SmolVMs has ended")
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
		for _, text := range d.wrong {
			t.Error(text)
		}
	})
	return d
}

func (d *diary) refuse(format string, values ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wrong = append(d.wrong, fmt.Sprintf(format, values...))
}

func (d *diary) note(e watch.Event) {
	vm, ok := e.Object.(*v1alpha1.SmolVM)
	if !ok || e.Type == watch.Deleted {
		return
	}
	if before := d.nodeOf(vm); before != vm.Status.NodeName {
		d.refuse("%s has moved from %s to %s", vm.Name, before, vm.Status.NodeName)
	}
	if d.returns(vm) {
		d.refuse("the machine of %s was lost, and is there again without being asked for: %+v", vm.Name, vm.Status)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range vm.Status.Conditions {
		text := fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason)
		last := ""
		for _, said := range d.said[vm.Name] {
			if strings.HasPrefix(said, c.Type+"=") {
				last = said
			}
		}
		if text != last {
			d.said[vm.Name] = append(d.said[vm.Name], text)
		}
	}
}

// nodeOf returns the first node of a SmolVM.
func (d *diary) nodeOf(vm *v1alpha1.SmolVM) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nodes[vm.UID] == "" {
		d.nodes[vm.UID] = vm.Status.NodeName
	}
	return d.nodes[vm.UID]
}

// returns returns whether a machine that was lost is there, and the annotation has not been seen since.
func (d *diary) returns(vm *v1alpha1.SmolVM) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked, lost := d.lost[vm.UID]
	switch {
	case meta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionLocalStateLost):
		d.lost[vm.UID] = asked || vm.Annotations[v1alpha1.AnnotationRecreate] == v1alpha1.AnnotationTrue
		return false
	case meta.IsStatusConditionFalse(vm.Status.Conditions, v1alpha1.ConditionLocalStateLost):
		delete(d.lost, vm.UID)
		return lost && !asked
	}
	return false
}

// has returns whether a SmolVM has said all of these, in this order.
func (d *diary) has(name string, texts ...string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	said := d.said[name]
	for _, text := range texts {
		i := slices.Index(said, text)
		if i < 0 {
			return false
		}
		said = said[i+1:]
	}
	return true
}

// of returns all that a SmolVM has said.
func (d *diary) of(name string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.said[name])
}
