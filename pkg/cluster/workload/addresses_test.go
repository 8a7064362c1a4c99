package workload

import (
	"context"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOrder(t *testing.T) {
	for name, c := range map[string]struct {
		list []string
		good string
		last []string
		want []string
	}{
		"no address":                             {},
		"as configured":                          {list: []string{"a", "b", "c"}, want: []string{"a", "b", "c"}},
		"the good one first":                     {list: []string{"a", "b", "c"}, good: "b", want: []string{"b", "a", "c"}},
		"the good one is not configured anymore": {list: []string{"a", "c"}, good: "b", want: []string{"a", "c"}},
		"silent ones last, in their order":       {list: []string{"a", "b", "c", "d"}, last: []string{"c", "a"}, want: []string{"b", "d", "a", "c"}},
		"all are silent":                         {list: []string{"a", "b"}, last: []string{"a", "b"}, want: []string{"a", "b"}},
		"the good one although it was silent":    {list: []string{"a", "b"}, good: "b", last: []string{"b"}, want: []string{"b", "a"}},
		"named twice":                            {list: []string{"a", "a", "b"}, want: []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			last := map[string]bool{}
			for _, address := range c.last {
				last[address] = true
			}
			before := append([]string(nil), c.list...)
			if diff := cmp.Diff(c.want, order(c.list, c.good, last)); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.list); diff != "" {
				t.Errorf("the list itself was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestAddressesRemember(t *testing.T) {
	a := &addresses{}
	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{"addresses are set", func() { a.set([]string{"a", "b", "c"}) }, []string{"a", "b", "c"}},
		{"the first is silent", func() { a.tried("a", context.DeadlineExceeded) }, []string{"b", "c", "a"}},
		{"the second refuses, which costs no time", func() { a.tried("b", syscall.ECONNREFUSED) }, []string{"b", "c", "a"}},
		{"the third answers", func() { a.tried("c", nil) }, []string{"c", "b", "a"}},
		{"it is not ready", func() { a.distrust(&statusError{code: 500}) }, []string{"b", "a", "c"}},
		{"it is again", func() { a.tried("c", nil) }, []string{"c", "b", "a"}},
		{"an address comes", func() { a.set([]string{"d", "a", "c"}) }, []string{"c", "d", "a"}},
		{"the good one is lost", func() { a.tried("c", syscall.ECONNREFUSED) }, []string{"d", "c", "a"}},
		{"the silent one answers", func() { a.tried("a", nil) }, []string{"a", "d", "c"}},
		{"it goes and comes back", func() { a.set([]string{"d"}); a.set([]string{"d", "a"}) }, []string{"a", "d"}},
	}
	for _, step := range steps {
		step.do()
		if diff := cmp.Diff(step.want, a.order()); diff != "" {
			t.Fatalf("after %s (-want +got):\n%s", step.name, diff)
		}
	}
	if a.set([]string{"d", "a"}) {
		t.Error("the same addresses count as others")
	}
}
