package process_test

import (
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

func TestMarksOfTheDeadAreTold(t *testing.T) {
	mark, err := process.Mark()
	if err != nil {
		t.Fatal(err)
	}
	namespace, rest, _ := strings.Cut(mark, "-")
	pid, _, _ := strings.Cut(rest, "-")
	for name, test := range map[string]struct {
		name string
		want bool
	}{
		"this process":                          {name: mark},
		"this process, with more behind":        {name: mark + "-2-node"},
		"an earlier process of the same id":     {name: namespace + "-" + pid + "-1", want: true},
		"a process that is not":                 {name: namespace + "-4194399-1-x", want: true},
		"a process of another namespace":        {name: "1-4194399-1"},
		"a name without a mark":                 {name: "system"},
		"a name that only looks like one":       {name: namespace + "-x-1"},
		"a name that ends before the mark does": {name: namespace + "-" + pid},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := process.Ended(test.name)
			if err != nil || got != test.want {
				t.Errorf("%s: ended is %v (%v), want %v", test.name, got, err, test.want)
			}
		})
	}
}
