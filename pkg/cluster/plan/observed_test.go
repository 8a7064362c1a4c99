package plan

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestWhatIsTrusted: nothing in a namespace of another owner counts, whatever else is observed of a cluster. Each field
// is either trusted or not, so a new one is not forgotten.
func TestWhatIsTrusted(t *testing.T) {
	trusted := []string{"Config", "Settings", "Connects", "OnlyMachines", "Rendering", "Doubt", "Release", "Secrets", "Hold", "Volumes", "Workload", "Etcd"}
	left := []string{"Held", "Namespace", "Objects", "BootData", "Services", "Ingresses", "Restores", "Snapshots", "Retirements"}
	fields := reflect.VisibleFields(reflect.TypeFor[Observed]())
	fields = slices.DeleteFunc(fields, func(f reflect.StructField) bool { return len(f.Index) > 1 })
	if len(fields) != len(trusted)+len(left) {
		t.Errorf("there are %d fields, of which %d are trusted and %d are not", len(fields), len(trusted), len(left))
	}
	for _, hold := range []state.Hold{state.HoldForeign, state.HoldOwn, state.HoldFormer, state.HoldNone} {
		for _, f := range fields {
			var o Observed
			observe(reflect.ValueOf(&o).Elem().FieldByIndex(f.Index))
			o.Hold = hold
			kept := !reflect.ValueOf(o.trusted()).FieldByIndex(f.Index).IsZero()
			if want := hold != state.HoldForeign || slices.Contains(trusted, f.Name); kept != want {
				t.Errorf("in a namespace that is %q, %s is trusted: %t, want %t", hold, f.Name, kept, want)
			}
		}
	}
}

// observe sets a value to something.
func observe(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Interface:
		v.Set(reflect.ValueOf(errors.New("x")))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Struct:
		observe(v.Field(0))
	default:
		panic("a field of another kind: " + v.Kind().String())
	}
}

// TestHalves: what is stored of boot data is empty as far as objects are missing.
func TestHalves(t *testing.T) {
	private := &corev1.Secret{Data: map[string][]byte{nodepod.UserData: []byte("a")}}
	public := &corev1.ConfigMap{Data: map[string]string{nodepod.UserData: "b"}}
	for data, want := range map[BootData]cloudconfig.Halves{
		{}:                                 {},
		{Private: private}:                 {Private: "a"},
		{Public: public}:                   {Public: "b"},
		{Private: private, Public: public}: {Private: "a", Public: "b"},
		{Private: &corev1.Secret{}, Public: &corev1.ConfigMap{}}: {},
	} {
		if got := data.halves(); got != want {
			t.Errorf("of %+v: %+v, want %+v", data, got, want)
		}
	}
}
