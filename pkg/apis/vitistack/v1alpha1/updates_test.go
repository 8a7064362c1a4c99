package v1alpha1_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

const (
	shrinks     = "spec.disks[0].size: Invalid value: must not shrink, because claims can only grow; set it back or raise it"
	shrinksInGB = "spec.disks[0].sizeGB: Invalid value: must not shrink, because claims can only grow; set it back or raise it"
	keepsClass  = "spec.disks[0].storageClass: Invalid value: is immutable, because the disk has its data there; set it back, or add another disk"
	keepsAccess = "spec.disks[0].accessMode: Invalid value: is immutable, because claims keep theirs; set it back, or add another disk"
	keepsMode   = "spec.disks[0].volumeMode: Invalid value: is immutable, because claims keep theirs; set it back, or add another disk"
	keepsSource = "spec.disks[0].source: Invalid value: is immutable, because the disk is filled from it; set it back, or add another disk"
)

// An update changes a machine whose first disk has the first fields into one in which it has the second; want is empty if
// that is accepted.
type update struct{ before, after, want string }

var updates = map[string]update{
	"a disk grows":                        {before: "size: 40Gi", after: "size: 41Gi"},
	"a disk stays, written otherwise":     {before: "size: 1Gi", after: "size: 1024Mi"},
	"a disk shrinks":                      {before: "size: 40Gi", after: "size: 39Gi", want: shrinks},
	"a disk shrinks by another unit":      {before: "size: 40Gi", after: "size: 40G", want: shrinks},
	"a disk gets a size":                  {before: "", after: "size: 1Gi"},
	"a disk loses its size":               {before: "size: 40Gi", after: ""},
	"a disk gets a wrong size":            {before: "size: 40Gi", after: "size: none", want: badQuantity("spec.disks[0].size", "none")},
	"a disk in GiB grows":                 {before: "sizeGB: 40", after: "sizeGB: 41"},
	"a disk in GiB shrinks":               {before: "sizeGB: 40", after: "sizeGB: 39", want: shrinksInGB},
	"a disk in GiB gets the same size":    {before: "sizeGB: 40", after: "size: 40Gi"},
	"a disk in GiB gets a lower size":     {before: "sizeGB: 40", after: "sizeGB: 40, size: 40G", want: shrinks},
	"a size becomes one in GiB":           {before: "size: 40Gi", after: "sizeGB: 40"},
	"a size becomes a lower one in GiB":   {before: "size: 40Gi", after: "sizeGB: 39", want: shrinksInGB},
	"a size in GiB without effect":        {before: "size: 40Gi, sizeGB: 10", after: "size: 40Gi, sizeGB: 5"},
	"another class":                       {before: "storageClass: a", after: "storageClass: b", want: keepsClass},
	"a class is set":                      {before: "", after: "storageClass: b", want: keepsClass},
	"a class is removed":                  {before: "storageClass: a", after: "", want: keepsClass},
	"an empty class is removed":           {before: `storageClass: ""`, after: ""},
	"another mode of access":              {before: "accessMode: ReadWriteOnce", after: "accessMode: ReadWriteMany", want: keepsAccess},
	"a mode of access is set":             {before: "", after: "accessMode: ReadWriteMany", want: keepsAccess},
	"a mode of access is removed":         {before: "accessMode: ReadWriteOnce", after: "", want: keepsAccess},
	"another mode of the volume":          {before: "volumeMode: Block", after: "volumeMode: Filesystem", want: keepsMode},
	"a mode of the volume is set":         {before: "", after: "volumeMode: Block", want: keepsMode},
	"a mode of the volume is removed":     {before: "volumeMode: Block", after: "", want: keepsMode},
	"another source":                      {before: "source: {pvc: {name: a}}", after: "source: {pvc: {name: b}}", want: keepsSource},
	"a source of another kind":            {before: "source: {pvc: {name: a}}", after: "source: {snapshot: {name: a}}", want: keepsSource},
	"a source is set":                     {before: "", after: "source: {pvc: {name: a}}", want: keepsSource},
	"a source is removed":                 {before: "source: {pvc: {name: a}}", after: "", want: keepsSource},
	"another bus":                         {before: "type: virtio", after: "type: sata"},
	"another disk is booted from":         {before: "boot: true", after: ""},
	"a disk whose claim has a long name":  {before: "", after: "name: " + name62[:59], want: longClaim},
	"another disk in the place of it":     {before: "name: a, size: 40Gi, storageClass: a", after: "name: b, size: 1Gi, storageClass: b"},
	"a disk that had no name is the root": {before: "size: 40Gi", after: "name: root, size: 39Gi", want: shrinks},
}

func TestUpdates(t *testing.T) {
	for name, test := range updates {
		t.Run(name, func(t *testing.T) {
			stored := server.Store(t, crd.Load(t, machine, "spec: {disks: [{"+test.before+"}]}"))
			crd.Merge(stored.Object, crd.Parse(t, "spec: {disks: [{"+test.after+"}]}"))
			err := server.Update(t.Context(), stored, client.DryRunAll)
			crd.Answered(t, err, test.want)
		})
	}
}

// TestOtherFieldsMayChange: what is not about a disk is up to the user, and takes effect live or with the next start.
func TestOtherFieldsMayChange(t *testing.T) {
	for name, change := range map[string]string{
		"another template":           "spec: {template: large}",
		"a class":                    "spec: {template: <remove>, machineClass: medium}",
		"fewer processors":           "spec: {resources: {cpu: {cores: 1}}}",
		"less memory":                "spec: {resources: {memory: {size: 1Gi}}}",
		"no disks":                   "spec: {disks: <remove>}",
		"other networks":             "spec: {networks: [{name: eth9, networkName: back}]}",
		"another boot order":         "spec: {bootOrder: [network]}",
		"other data for cloud-init":  "spec: {cloudInit: {secretRef: <remove>, userData: a}}",
		"another kind of cloud-init": "spec: {cloudInit: {type: configDrive}}",
		"another firmware":           "spec: {domain: {firmware: {bootloader: {efi: false}}}}",
		"another provider":           "spec: {provider: proxmox}",
	} {
		t.Run(name, func(t *testing.T) {
			stored := server.Store(t, crd.Load(t, machine))
			crd.Merge(stored.Object, crd.Parse(t, change))
			if err := server.Update(t.Context(), stored, client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}
