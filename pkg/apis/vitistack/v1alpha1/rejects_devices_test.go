package v1alpha1_test

import (
	"fmt"
	"strings"
)

func nic(fields, want string) rejection {
	return rejection{change: "spec: {networks: [{name: a, networkName: a, " + fields + "}]}", want: "spec.networks[0]" + want}
}

func badMAC(address string) rejection {
	return nic(fmt.Sprintf("macAddress: %q", address),
		fmt.Sprintf(`.macAddress: Invalid value: %q: must be a unicast address of 6 octets, for example 52:54:00:12:34:56`, address))
}

var rejectedDevices = map[string]rejection{
	"an interface without a name":       {change: "spec: {networks: [{networkName: a}]}", want: "spec.networks[0].name: Required value"},
	"an interface with an empty name":   {change: `spec: {networks: [{name: "", networkName: a}]}`, want: `spec.networks[0].name: Invalid value: "": must be letters, digits, '_' and '-'`},
	"an interface with a dot":           {change: "spec: {networks: [{name: eth0.1, networkName: a}]}", want: `spec.networks[0].name: Invalid value: "eth0.1": must be letters, digits, '_' and '-'`},
	"an interface of 64 characters":     {change: "spec: {networks: [{name: n" + name63 + ", networkName: a}]}", want: tooLong("spec.networks[0].name", 63)},
	"an interface twice":                {change: "spec: {networks: [{name: a, networkName: a}, {name: a, networkName: b}]}", want: `spec.networks[1]: Duplicate value: {"name":"a"}`},
	"an interface without a network":    {change: "spec: {networks: [{name: a}]}", want: "spec.networks[0].networkName: Required value"},
	"an interface of an empty network":  {change: `spec: {networks: [{name: a, networkName: ""}]}`, want: `spec.networks[0].networkName: Invalid value: "": spec.networks[0].networkName in body should be at least 1 chars long`},
	"an unknown model":                  nic("model: vmxnet3", `.model: Unsupported value: "vmxnet3": supported values: "virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"`),
	"a MAC address for all":             badMAC("ff:ff:ff:ff:ff:ff"),
	"a MAC address for many":            badMAC("01:00:5e:00:00:01"),
	"a MAC address of zeros":            badMAC("00:00:00:00:00:00"),
	"a MAC address of 5 octets":         badMAC("52:54:00:12:34"),
	"a MAC address of 8 octets":         {change: `spec: {networks: [{name: a, networkName: a, macAddress: "52:54:00:12:34:56:78:9a"}]}`, want: tooLong("spec.networks[0].macAddress", 17)},
	"a MAC address without separators":  badMAC("525400123456"),
	"a MAC address with other letters":  badMAC("52:54:00:12:34:5g"),
	"an empty MAC address":              badMAC(""),
	"17 interfaces":                     {change: "spec: {networks: [" + entries(17, "{name: a%d, networkName: a}") + "]}", want: "spec.networks: Too many: 17: must have at most 16 items"},
	"an unknown word of the boot order": {change: "spec: {bootOrder: [disk, usb]}", want: `spec.bootOrder[1]: Unsupported value: "usb": supported values: "disk", "network", "cdrom"`},
	"a word of the boot order twice":    {change: "spec: {bootOrder: [disk, network, disk]}", want: `spec.bootOrder[2]: Duplicate value: "disk"`},
	"a misspelt field":                  {change: "spec: {tmplate: medium}", want: `Machine in version "v1alpha1" cannot be handled as a Machine: strict decoding error: unknown field "spec.tmplate"`},
}

func twoSources(part string) string {
	return fmt.Sprintf("spec.cloudInit: Invalid value: %s and %sBase64 are two sources of one thing; remove one", part, part)
}

var rejectedBoot = map[string]rejection{
	"user data from two fields":       {change: "spec: {cloudInit: {userData: a, userDataBase64: YQ==}}", want: twoSources("userData")},
	"network data from two fields":    {change: "spec: {cloudInit: {networkData: a, networkDataBase64: YQ==}}", want: twoSources("networkData")},
	"a Secret without a name":         {change: "spec: {cloudInit: {secretRef: {name: <remove>}}}", want: "spec.cloudInit.secretRef.name: Required value"},
	"a Secret with an empty name":     {change: `spec: {cloudInit: {secretRef: {name: ""}}}`, want: `spec.cloudInit.secretRef.name: Invalid value: "": spec.cloudInit.secretRef.name in body should be at least 1 chars long`},
	"an unknown kind of cloud-init":   {change: "spec: {cloudInit: {type: NoCloud}}", want: `spec.cloudInit.type: Unsupported value: "NoCloud": supported values: "noCloud", "configDrive"`},
	"user data of more than 256 KiB":  {change: "spec: {cloudInit: {userData: " + strings.Repeat("a", 262145) + "}}", want: tooLong("spec.cloudInit.userData", 262144)},
	"Secure Boot without EFI":         {change: "spec: {domain: {firmware: {bootloader: {efi: <remove>, secureBoot: true}}}}", want: noSecureBoot},
	"Secure Boot with BIOS":           {change: "spec: {domain: {firmware: {bootloader: {efi: false, secureBoot: true}}}}", want: noSecureBoot},
	"a machine type of 64 characters": {change: "spec: {domain: {machine: {type: n" + name63 + "}}}", want: tooLong("spec.domain.machine.type", 63)},
	"a text as feature":               {change: `spec: {domain: {features: {acpi: "yes"}}}`, want: `spec.domain.features.acpi: Invalid value: "string": spec.domain.features.acpi in body must be of type boolean: "string"`},
}

const noSecureBoot = "spec.domain.firmware.bootloader: Invalid value: secureBoot needs efi: true; set it, or remove secureBoot"

// rejectedClassics are about the fields of vitistack/common.
var rejectedClassics = map[string]rejection{
	"no core of a class":           processors("spec.cpu", "cores", 0, "greater than or equal to 1"),
	"257 cores of a class":         processors("spec.cpu", "cores", 257, "less than or equal to 256"),
	"no thread of a class":         processors("spec.cpu", "threadsPerCore", 0, "greater than or equal to 1"),
	"9 threads of a class":         processors("spec.cpu", "threadsPerCore", 9, "less than or equal to 8"),
	"no socket of a class":         processors("spec.cpu", "sockets", 0, "greater than or equal to 1"),
	"17 sockets of a class":        processors("spec.cpu", "sockets", 17, "less than or equal to 16"),
	"less than no bytes of memory": processors("spec", "memory", -1, "greater than or equal to 0"),
	"a text as network":            {change: "spec: {network: dc1}", want: `spec.network: Invalid value: "string": spec.network in body must be of type object: "string"`},
}

var rejectedNetworks = map[string]rejection{
	"a VLAN of 4095":                 {change: "spec: {vlan: 4095}", want: outside("spec.vlan", 4095, "less than or equal to 4094")},
	"a VLAN below 0":                 {change: "spec: {vlan: -1}", want: outside("spec.vlan", -1, "greater than or equal to 0")},
	"a bridge of 16 characters":      {change: "spec: {bridge: a234567890123456}", want: tooLong("spec.bridge", 15)},
	"a bridge with a slash":          {change: "spec: {bridge: a/b}", want: badBridge("a/b")},
	"a bridge with a space":          {change: "spec: {bridge: 'a b'}", want: badBridge("a b")},
	"a bridge that is a directory":   {change: "spec: {bridge: .}", want: badBridge(".")},
	"a bridge that is the one above": {change: "spec: {bridge: ..}", want: badBridge("..")},
	"a description of 257 bytes":     {change: "spec: {description: " + strings.Repeat("a", 257) + "}", want: tooLong("spec.description", 256)},
	"an unknown method":              {change: "spec: {networkInterfaces: [{allocationMethod: bootp}]}", want: `spec.networkInterfaces[0].allocationMethod: Unsupported value: "bootp": supported values: "dhcp", "static"`},
}

func badBridge(name string) string {
	return fmt.Sprintf("spec.bridge: Invalid value: %q: must be the name of an interface: letters, digits, '_', '.' and '-'", name)
}

var rejectedClasses = map[string]rejection{
	"a class without a core":    processors("spec.cpu", "cores", 0, "greater than or equal to 1"),
	"a class of 257 cores":      processors("spec.cpu", "cores", 257, "less than or equal to 256"),
	"a class of 9 threads":      processors("spec.cpu", "threads", 9, "less than or equal to 8"),
	"a class of 17 sockets":     processors("spec.cpu", "sockets", 17, "less than or equal to 16"),
	"a class without memory":    {change: "spec: {memory: {quantity: <remove>}}", want: "spec.memory.quantity: Required value"},
	"a class with no memory":    {change: `spec: {memory: {quantity: "0"}}`, want: badQuantity("spec.memory.quantity", "0")},
	"a least memory of nothing": {change: `spec: {memory: {minQuantity: "0"}}`, want: badQuantity("spec.memory.minQuantity", "0")},
	"a most memory of nothing":  {change: `spec: {memory: {maxQuantity: "0"}}`, want: badQuantity("spec.memory.maxQuantity", "0")},
}
