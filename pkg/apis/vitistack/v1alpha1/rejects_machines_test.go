package v1alpha1_test

import (
	"fmt"
	"strings"
)

const (
	twoSizes   = "spec: Invalid value: template and machineClass are two names for a size; remove one"
	noHostname = "<nil>: Invalid value: metadata.name must be at most 63 characters and have no dot, because it is the host name of the guest"
	longClaim  = "<nil>: Invalid value: metadata.name, '-' and the name of a disk must be at most 63 characters together, because that is the name of the disk's claim"
)

func badQuantity(path, value string) string {
	return fmt.Sprintf("%s: Invalid value: %q: must be a quantity of more than zero, for example 8Gi", path, value)
}

// memory is a size that the API server refuses, and what it says.
func memory(size string) rejection {
	return rejection{change: fmt.Sprintf("spec: {resources: {memory: {size: %q}}}", size), want: badQuantity("spec.resources.memory.size", size)}
}

// processors is a topology that the API server refuses, and what it says.
func processors(path, field string, value int64, bound string) rejection {
	change := fmt.Sprintf("{%s: %d}", field, value)
	parts := strings.Split(path, ".")
	for i := len(parts) - 1; i >= 0; i-- {
		change = "{" + parts[i] + ": " + change + "}"
	}
	return rejection{change: change, want: outside(path+"."+field, value, bound)}
}

var rejectedSizes = map[string]rejection{
	"a name of 64 characters":     {change: "{metadata: {name: n" + name63 + "}, spec: {disks: []}}", want: noHostname},
	"a name with a dot":           {change: "metadata: {name: a.b}", want: noHostname},
	"a template and a class":      {change: "spec: {machineClass: medium}", want: twoSizes},
	"a template of 64 characters": {change: "spec: {template: n" + name63 + "}", want: tooLong("spec.template", 63)},
	"no core":                     processors("spec.resources.cpu", "cores", 0, "greater than or equal to 1"),
	"257 cores":                   processors("spec.resources.cpu", "cores", 257, "less than or equal to 256"),
	"no thread":                   processors("spec.resources.cpu", "threads", 0, "greater than or equal to 1"),
	"9 threads":                   processors("spec.resources.cpu", "threads", 9, "less than or equal to 8"),
	"no socket":                   processors("spec.resources.cpu", "sockets", 0, "greater than or equal to 1"),
	"17 sockets":                  processors("spec.resources.cpu", "sockets", 17, "less than or equal to 16"),
	"no memory":                   memory("0"),
	"no memory in GiB":            memory("0Gi"),
	"less than no memory":         memory("-1Gi"),
	"memory of an empty text":     memory(""),
	"memory in words":             memory("much"),
	"memory in millibytes":        memory("100m"),
	"memory with a space":         memory("8 Gi"),
	"memory with a foreign unit":  memory("8GB"),
	"memory with a long number":   {change: "spec: {resources: {memory: {size: " + strings.Repeat("9", 33) + "Gi}}}", want: tooLong("spec.resources.memory.size", 32)},
	"memory as a number": {
		change: "spec: {resources: {memory: {size: 8}}}",
		want:   `spec.resources.memory.size: Invalid value: "integer": spec.resources.memory.size in body must be of type string: "integer"`,
	},
	"a core and a half": {
		change: "spec: {resources: {cpu: {cores: 1.5}}}", want: `spec.resources.cpu.cores: Invalid value: "number": spec.resources.cpu.cores in body must be of type integer: "number"`,
	},
}

const noLabel = "must be small letters, digits and '-', with a letter or digit at both ends"

func disk(fields, want string) rejection {
	return rejection{change: "spec: {disks: [{" + fields + "}]}", want: "spec.disks[0]" + want}
}

const (
	oneSource    = ".source: Invalid value: exactly one of the fields in [containerDisk pvc snapshot http registry] must be set"
	withoutClaim = ": Invalid value: a disk from a containerDisk has no claim, so it has neither size, sizeGB, storageClass, accessMode nor volumeMode"
)

var rejectedDisks = map[string]rejection{
	"a disk with a capital":           disk("name: Root", `.name: Invalid value: "Root": `+noLabel),
	"a disk with a dot":               disk("name: a.b", `.name: Invalid value: "a.b": `+noLabel),
	"a disk with a dash at the end":   disk("name: a-", `.name: Invalid value: "a-": `+noLabel),
	"a disk with an empty name":       disk(`name: ""`, `.name: Invalid value: "": `+noLabel),
	"the disk of cloud-init":          disk("name: cloudinitdisk", `.name: Invalid value: "cloudinitdisk": is the operator's own name for a disk; choose another one`),
	"the disk of an image":            disk("name: cdrom-iso", `.name: Invalid value: "cdrom-iso": is the operator's own name for a disk; choose another one`),
	"a claim of 64 characters":        {change: "{metadata: {name: m}, spec: {disks: [{name: " + name62 + "}]}}", want: longClaim},
	"a claim of 64 characters (root)": {change: "{metadata: {name: " + name62[:59] + "}, spec: {disks: [{size: 1Gi}]}}", want: longClaim},
	"a disk twice":                    {change: "spec: {disks: [{name: a, size: 1Gi}, {name: a, size: 2Gi}]}", want: `spec.disks[1]: Duplicate value: {"name":"a"}`},
	"two disks without a name":        {change: "spec: {disks: [{size: 1Gi}, {size: 2Gi}]}", want: `spec.disks[1]: Duplicate value: {"name":"root"}`},
	"a disk of no size":               disk(`size: "0"`, `.size: Invalid value: "0": must be a quantity of more than zero, for example 8Gi`),
	"a disk of less than no size":     disk("size: -40Gi", `.size: Invalid value: "-40Gi": must be a quantity of more than zero, for example 8Gi`),
	"a disk of 0 GiB":                 disk("sizeGB: 0", ".sizeGB: Invalid value: 0: spec.disks[0].sizeGB in body should be greater than or equal to 1"),
	"a disk of 64 PiB and one GiB":    disk("sizeGB: 65537", ".sizeGB: Invalid value: 65537: spec.disks[0].sizeGB in body should be less than or equal to 65536"),
	"an unknown mode of access":       disk("accessMode: ReadWriteOncePod", `.accessMode: Unsupported value: "ReadWriteOncePod": supported values: "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"`),
	"an empty mode of access":         disk(`accessMode: ""`, `.accessMode: Unsupported value: "": supported values: "ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"`),
	"an unknown mode of a volume":     disk("volumeMode: block", `.volumeMode: Unsupported value: "block": supported values: "Filesystem", "Block"`),
	"a class of 254 characters":       {change: "spec: {disks: [{storageClass: " + strings.Repeat("a", 254) + "}]}", want: tooLong("spec.disks[0].storageClass", 253)},
	"a bus of 64 characters":          {change: "spec: {disks: [{type: n" + name63 + "}]}", want: tooLong("spec.disks[0].type", 63)},
	"a source without a source":       disk("source: {}", oneSource),
	"two sources":                     disk("source: {pvc: {name: a}, snapshot: {name: a}}", oneSource),
	"an image and a claim":            disk("source: {containerDisk: {image: a}, pvc: {name: a}}", oneSource),
	"a source without a name":         disk("source: {pvc: {}}", ".source.pvc.name: Required value"),
	"a source with an empty name":     disk(`source: {snapshot: {name: ""}}`, `.source.snapshot.name: Invalid value: "": spec.disks[0].source.snapshot.name in body should be at least 1 chars long`),
	"an empty image":                  disk(`source: {containerDisk: {image: ""}}`, `.source.containerDisk.image: Invalid value: "": spec.disks[0].source.containerDisk.image in body should be at least 1 chars long`),
	"an image with a size":            disk("size: 1Gi, source: {containerDisk: {image: a}}", withoutClaim),
	"an image with a size in GiB":     disk("sizeGB: 1, source: {containerDisk: {image: a}}", withoutClaim),
	"an image with a class":           disk("storageClass: a, source: {containerDisk: {image: a}}", withoutClaim),
	"an image with a mode":            disk("volumeMode: Block, source: {containerDisk: {image: a}}", withoutClaim),
	"33 disks":                        {change: "spec: {disks: [" + entries(33, "{name: a%d}") + "]}", want: "spec.disks: Too many: 33: must have at most 32 items"},
}

// entries is a list with as many entries, each with its number.
func entries(n int, entry string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(entry, i)
	}
	return strings.Join(all, ", ")
}
