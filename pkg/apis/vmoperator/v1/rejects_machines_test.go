package v1_test

// What is wrong with the processor, memory, firmware and clock of spec.vm.
var rejectedMachines = map[string]rejection{
	"neither CPUs nor topology": {
		change: "spec: {vm: {maximumCpus: <remove>}}",
		want:   "spec.vm: Invalid value: must have exactly one of maximumCpus and cpuTopology; write maximumCpus: 4, for example",
	},
	"both CPUs and topology": {
		change: "spec: {vm: {cpuTopology: {sockets: 2}}}",
		want:   "spec.vm: Invalid value: must have exactly one of maximumCpus and cpuTopology; write maximumCpus: 4, for example",
	},
	"no CPU": {
		change: "spec: {vm: {maximumCpus: 0, currentCpus: <remove>}}",
		want:   "spec.vm.maximumCpus: Invalid value: 0: spec.vm.maximumCpus in body should be greater than or equal to 1",
	},
	"289 CPUs": {
		change: "spec: {vm: {maximumCpus: 289}}",
		want:   "spec.vm.maximumCpus: Invalid value: 289: spec.vm.maximumCpus in body should be less than or equal to 288",
	},
	"a product of 289 CPUs": {
		change: "spec: {vm: {maximumCpus: <remove>, cpuTopology: {sockets: 17, diesPerSocket: 17}}}",
		want:   "spec.vm.cpuTopology: Invalid value: must not have a product of more than 288 CPUs; lower one of sockets, diesPerSocket, coresPerDie and threadsPerCore",
	},
	"a negative number of cores": {
		change: "spec: {vm: {maximumCpus: <remove>, currentCpus: <remove>, cpuTopology: {coresPerDie: -1}}}",
		want:   "spec.vm.cpuTopology.coresPerDie: Invalid value: -1: spec.vm.cpuTopology.coresPerDie in body should be greater than or equal to 0",
	},
	"more CPUs than the maximum": {
		change: "spec: {vm: {currentCpus: 3}}",
		want:   "spec.vm.currentCpus: Invalid value: must not be more than maximumCpus, or the product of cpuTopology; lower it, or raise the maximum",
	},
	"more CPUs than the topology has": {
		change: "spec: {vm: {maximumCpus: <remove>, currentCpus: 9, cpuTopology: {sockets: 2, diesPerSocket: 0, coresPerDie: 2, threadsPerCore: 2}}}",
		want:   "spec.vm.currentCpus: Invalid value: must not be more than maximumCpus, or the product of cpuTopology; lower it, or raise the maximum",
	},
	"more CPUs than one socket has": {
		change: "spec: {vm: {maximumCpus: <remove>, currentCpus: 2, cpuTopology: {sockets: 0}}}",
		want:   "spec.vm.currentCpus: Invalid value: must not be more than maximumCpus, or the product of cpuTopology; lower it, or raise the maximum",
	},
	"a negative number of CPUs": {
		change: "spec: {vm: {currentCpus: -1}}",
		want:   "spec.vm.currentCpus: Invalid value: -1: spec.vm.currentCpus in body should be greater than or equal to 1",
	},
	"a text as CPUs": {
		change: `spec: {vm: {maximumCpus: "2"}}`,
		want:   `spec.vm.maximumCpus: Invalid value: "string": spec.vm.maximumCpus in body must be of type integer: "string"`,
	},
	"more memory than the maximum": {
		change: "spec: {vm: {currentRam: 1025Mi}}",
		want:   "spec.vm.currentRam: Invalid value: must not be more than maximumRam, which is 1G when left out; lower it, or raise maximumRam",
	},
	"more memory than the default": {
		change: "spec: {vm: {maximumRam: <remove>, currentRam: 1Gi}}",
		want:   "spec.vm.currentRam: Invalid value: must not be more than maximumRam, which is 1G when left out; lower it, or raise maximumRam",
	},
	"memory in GB": {
		change: "spec: {vm: {maximumRam: 4 GB}}",
		want:   `spec.vm.maximumRam: Invalid value: "4 GB": must be a quantity in bytes, for example 8Gi`,
	},
	"current memory in GB": {
		change: "spec: {vm: {currentRam: 1GB}}",
		want:   `spec.vm.currentRam: Invalid value: "1GB": must be a quantity in bytes, for example 4Gi`,
	},
	"negative memory": {
		change: "spec: {vm: {maximumRam: -1Gi}}",
		want:   `spec.vm.maximumRam: Invalid value: "-1Gi": must be a quantity in bytes, for example 8Gi`,
	},
	"a number as memory": {
		change: "spec: {vm: {maximumRam: 1073741824}}",
		want:   `spec.vm.maximumRam: Invalid value: "integer": spec.vm.maximumRam in body must be of type string: "integer"`,
	},
	"memory of 1 MB": {
		change: "spec: {vm: {maximumRam: 1M}}",
		want:   `spec.vm.maximumRam: Invalid value: "1M": must be 1Mi to 16Ti, for example 8Gi`,
	},
	"current memory of a byte": {
		change: `spec: {vm: {currentRam: "1"}}`,
		want:   `spec.vm.currentRam: Invalid value: "1": must be 1Mi or more, for example 4Gi`,
	},
	"memory of 17Ti": {
		change: "spec: {vm: {maximumRam: 17Ti}}",
		want:   `spec.vm.maximumRam: Invalid value: "17Ti": must be 1Mi to 16Ti, for example 8Gi`,
	},
	"a large exponent": {
		change: "spec: {vm: {maximumRam: '1e99'}}",
		want:   `spec.vm.maximumRam: Invalid value: "1e99": must be 1Mi to 16Ti, for example 8Gi`,
	},
	"a lower-case state": {
		change: "spec: {vm: {state: running}}",
		want:   `spec.vm.state: Unsupported value: "running": supported values: "Stopped", "Running"`,
	},
	"a UUID without dashes": {
		change: "spec: {vm: {machineUuid: 6b1f0f0c7a4e4a579d0c3c1d5f2b9a10}}",
		want:   `spec.vm.machineUuid: Invalid value: "6b1f0f0c7a4e4a579d0c3c1d5f2b9a10": must be a UUID, for example 6b1f0f0c-7a4e-4a57-9d0c-3c1d5f2b9a10; leave it out to get the uid of the object`,
	},
	"an unknown firmware": {
		change: "spec: {vm: {firmware: coreboot}}",
		want:   `spec.vm.firmware: Unsupported value: "coreboot": supported values: "bios", "uefi", "uefi-4m", "secure", "secure-4m"`,
	},
	"no time to power down": {
		change: "spec: {vm: {powerdownTimeout: 0}}",
		want:   "spec.vm.powerdownTimeout: Invalid value: 0: spec.vm.powerdownTimeout in body should be greater than or equal to 1",
	},
	"more than a day to power down": {
		change: "spec: {vm: {powerdownTimeout: 86401}}",
		want:   "spec.vm.powerdownTimeout: Invalid value: 86401: spec.vm.powerdownTimeout in body should be less than or equal to 86400",
	},
	"a line break in the CPU model": {
		change: `spec: {vm: {cpuModel: "host\nfoo"}}`,
		want:   `spec.vm.cpuModel: Invalid value: "host\nfoo": must be a CPU model of QEMU with optional features after commas, for example host or Skylake-Server,-hle`,
	},
	"an option in the CPU model": {
		change: `spec: {vm: {cpuModel: "host -device x"}}`,
		want:   `spec.vm.cpuModel: Invalid value: "host -device x": must be a CPU model of QEMU with optional features after commas, for example host or Skylake-Server,-hle`,
	},
	"a line break in the clock": {
		change: `spec: {vm: {rtcBase: "utc\nfoo: bar"}}`,
		want:   `spec.vm.rtcBase: Invalid value: "utc\nfoo: bar": must be utc, localtime, or a date like 2026-01-31 or 2026-01-31T12:00:00`,
	},
	"an option in the clock": {
		change: `spec: {vm: {rtcBase: "utc,clock=vm"}}`,
		want:   `spec.vm.rtcBase: Invalid value: "utc,clock=vm": must be utc, localtime, or a date like 2026-01-31 or 2026-01-31T12:00:00`,
	},
	"a date without zeros": {
		change: `spec: {vm: {rtcBase: "2026-1-31"}}`,
		want:   `spec.vm.rtcBase: Invalid value: "2026-1-31": must be utc, localtime, or a date like 2026-01-31 or 2026-01-31T12:00:00`,
	},
	"an unknown clock": {
		change: `spec: {vm: {rtcClock: "rt\n"}}`,
		want:   `spec.vm.rtcClock: Unsupported value: "rt\n": supported values: "host", "rt", "vm"`,
	},
	"an unknown acceleration": {
		change: "spec: {vm: {acceleration: hvf}}",
		want:   `spec.vm.acceleration: Unsupported value: "hvf": supported values: "auto", "kvm", "tcg"`,
	},
	"a machine type without disks": {
		change: "spec: {vm: {machineType: microvm}}",
		want:   `spec.vm.machineType: Invalid value: "microvm": must be q35 or a version of it, for example pc-q35-10.0`,
	},
	"an option in the machine type": {
		change: `spec: {vm: {machineType: "q35,smm=on"}}`,
		want:   `spec.vm.machineType: Invalid value: "q35,smm=on": must be q35 or a version of it, for example pc-q35-10.0`,
	},
	"a line break in an argument": {
		change: `spec: {vm: {extraArgs: ["-a\nb"]}}`,
		want:   "spec.vm.extraArgs: Invalid value: must be arguments without line breaks and other control characters, none of them empty",
	},
	"an empty argument": {
		change: `spec: {vm: {extraArgs: [""]}}`,
		want:   "spec.vm.extraArgs: Invalid value: must be arguments without line breaks and other control characters, none of them empty",
	},
	"65 arguments": {
		change: "spec: {vm: {extraArgs: [" + repeat("a", 65) + "]}}",
		want:   "spec.vm.extraArgs: Too many: 65: must have at most 64 items",
	},
}
