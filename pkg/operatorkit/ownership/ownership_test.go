package ownership

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOwnersAreReadInBothForms: the form of earlier operators names a KVMConfig and no UID.
func TestOwnersAreReadInBothForms(t *testing.T) {
	for name, test := range map[string]struct {
		value, uid string
		want       Owner
		named      bool
	}{
		"today's form":            {"KVMConfig.provider.giantswarm.io/default/ab1cd/service", "1", Owner{kindOfEarlier, "default", "ab1cd", "1", "service"}, true},
		"another kind":            {"VirtualMachine.kvm.example.org/default/ab1cd/disk", "2", Owner{"VirtualMachine.kvm.example.org", "default", "ab1cd", "2", "disk"}, true},
		"without a UID":           {"KVMConfig.provider.giantswarm.io/default/ab1cd/service", "", Owner{kindOfEarlier, "default", "ab1cd", "", "service"}, true},
		"the earlier form":        {"default/ab1cd/service", "", Owner{kindOfEarlier, "default", "ab1cd", "", "service"}, true},
		"the earlier form, a UID": {"default/ab1cd/service", "1", Owner{kindOfEarlier, "default", "ab1cd", "", "service"}, true},
		"none":                    {"", "1", Owner{}, false},
		"too short":               {"default/ab1cd", "", Owner{}, false},
		"too long":                {"a/b/c/d/e", "", Owner{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{Annotation: test.value, AnnotationUID: test.uid}
			got, named := Parse(annotations)
			if diff := cmp.Diff(test.want, got); diff != "" || named != test.named {
				t.Errorf("named: %t, want %t; owner (-want +got):\n%s", named, test.named, diff)
			}
			if again, _ := Parse(got.Annotations()); named && again != got {
				t.Errorf("what is written down, %v, is read as %+v", got.Annotations(), again)
			}
		})
	}
}

// TestWhoIsNamed: the UID distinguishes a KVMConfig from a former one of its name, and the kind distinguishes it from
// another resource.
func TestWhoIsNamed(t *testing.T) {
	own := Owner{kindOfEarlier, "default", "ab1cd", "1", "service"}
	for name, test := range map[string]struct {
		annotations    map[string]string
		names, exactly bool
	}{
		"itself":              {own.Annotations(), true, true},
		"a former one":        {Owner{kindOfEarlier, "default", "ab1cd", "0", "service"}.Annotations(), true, false},
		"in the earlier form": {map[string]string{Annotation: "default/ab1cd/service"}, true, false},
		"another kind":        {Owner{"VirtualMachine.kvm.example.org", "default", "ab1cd", "1", "service"}.Annotations(), false, false},
		"another handler":     {Owner{kindOfEarlier, "default", "ab1cd", "1", "ingress"}.Annotations(), false, false},
		"another name":        {Owner{kindOfEarlier, "default", "other", "1", "service"}.Annotations(), false, false},
		"another namespace":   {Owner{kindOfEarlier, "other", "ab1cd", "1", "service"}.Annotations(), false, false},
		"an unreadable owner": {map[string]string{Annotation: "x"}, false, false},
		"no owner":            {nil, false, false},
	} {
		if got := own.Names(test.annotations); got != test.names {
			t.Errorf("%s: it is named: %t", name, got)
		}
		if got := own.NamesExactly(test.annotations); got != test.exactly {
			t.Errorf("%s: it is named exactly: %t", name, got)
		}
	}
}
