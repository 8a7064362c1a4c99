package v1_test

// What is wrong with the name and with spec outside spec.vm.
var rejectedPods = map[string]rejection{
	"a name of 53 characters": {
		change: "metadata: {name: a2345678901234567890123456789012345678901234567890123}",
		want:   "<nil>: Invalid value: metadata.name must be a lower-case DNS label of at most 52 characters, letters, digits and '-' without dots, for example web-1",
	},
	"a name with a dot": {
		change: "metadata: {name: web.one}",
		want:   "<nil>: Invalid value: metadata.name must be a lower-case DNS label of at most 52 characters, letters, digits and '-' without dots, for example web-1",
	},
	"no spec": {
		change: "spec: <remove>",
		want:   "spec: Required value",
	},
	"no machine": {
		change: "spec: {vm: <remove>}",
		want:   "spec.vm: Required value",
	},
	"a node with a label that is none": {
		change: `spec: {nodeSelector: {zone: "a b"}}`,
		want:   `spec.nodeSelector[zone]: Invalid value: "a b": must be the value of a label: letters, digits, '-', '_' and '.', a letter or digit first and last, or empty`,
	},
	"a Service with a label that is none": {
		change: `spec: {loadBalancerService: {labels: {tier: "-gold"}}}`,
		want:   `spec.loadBalancerService.labels[tier]: Invalid value: "-gold": must be the value of a label: letters, digits, '-', '_' and '.', a letter or digit first and last, or null to remove the label`,
	},
	"half an image": {
		change: "spec: {image: {repository: r}}",
		want:   "spec.image: Invalid value: must have either source, or repository and path with an optional version; write source: registry.example.org/vm/runner:1.0, for example",
	},
	"the other half of an image": {
		change: "spec: {image: {path: p}}",
		want:   "spec.image: Invalid value: must have either source, or repository and path with an optional version; write source: registry.example.org/vm/runner:1.0, for example",
	},
	"only a pull policy": {
		change: "spec: {image: {pullPolicy: Always}}",
		want:   "spec.image: Invalid value: must have either source, or repository and path with an optional version; write source: registry.example.org/vm/runner:1.0, for example",
	},
	"an image given twice": {
		change: "spec: {image: {source: s, repository: r, path: p}}",
		want:   "spec.image: Invalid value: must have either source, or repository and path with an optional version; write source: registry.example.org/vm/runner:1.0, for example",
	},
	"an image with two tags": {
		change: "spec: {image: {source: s, version: v}}",
		want:   "spec.image: Invalid value: must have either source, or repository and path with an optional version; write source: registry.example.org/vm/runner:1.0, for example",
	},
	"an unknown pull policy": {
		change: "spec: {image: {source: s, pullPolicy: Sometimes}}",
		want:   `spec.image.pullPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "IfNotPresent"`,
	},
	"an empty image": {
		change: `spec: {image: {source: ""}}`,
		want:   `spec.image.source: Invalid value: "": must be the reference of an image, for example registry.example.org/vm/runner:1.0`,
	},
	"a URL as image": {
		change: `spec: {image: {source: "https://a b"}}`,
		want:   `spec.image.source: Invalid value: "https://a b": must be the reference of an image, for example registry.example.org/vm/runner:1.0`,
	},
	"a repository that ends in /": {
		change: "spec: {image: {repository: r/, path: p}}",
		want:   `spec.image.repository: Invalid value: "r/": must be a registry with an optional path, for example registry.example.org`,
	},
	"a path in upper case": {
		change: "spec: {image: {repository: r, path: P}}",
		want:   `spec.image.path: Invalid value: "P": must be the name of an image in the repository, lower-case letters, digits, '.', '_', '-' and '/', for example vm/runner`,
	},
	"a tag with a colon": {
		change: `spec: {image: {repository: r, path: p, version: "a:b"}}`,
		want:   `spec.image.version: Invalid value: "a:b": must be a tag, letters, digits, '.', '_' and '-', for example 1.0`,
	},
	"a negative request": {
		change: "spec: {resources: {requests: {cpu: -1}}}",
		want:   "spec.resources.requests[cpu]: Invalid value: -1: must be a quantity of zero or more, for example 2, 500m or 4Gi",
	},
	"a limit that is no quantity": {
		change: "spec: {resources: {limits: {memory: 1 GB}}}",
		want:   `spec.resources.limits[memory]: Invalid value: "1 GB": must be a quantity of zero or more, for example 2, 500m or 4Gi`,
	},
	"an exponent with a fraction": {
		change: "spec: {resources: {limits: {memory: 1e1.5}}}",
		want:   `spec.resources.limits[memory]: Invalid value: "1e1.5": must be a quantity of zero or more, for example 2, 500m or 4Gi`,
	},
	"a node that is none": {
		change: "spec: {nodeName: Host_1}",
		want:   `spec.nodeName: Invalid value: "Host_1": must be the name of a node, or empty to let the scheduler choose`,
	},
	"a weight of 0 for nodes": {
		change: "spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}}}",
		want:   "spec.affinity.nodeAffinity: Invalid value: must have weights of 1 to 100; write weight: 100 for the strongest preference",
	},
	"a weight of 101 for pods": {
		change: "spec: {affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, podAffinityTerm: {topologyKey: a}}]}}}",
		want:   "spec.affinity.podAffinity: Invalid value: must have weights of 1 to 100; write weight: 100 for the strongest preference",
	},
	"a weight of 33 bits": {
		change: "spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 4294967297, podAffinityTerm: {topologyKey: a}}]}}}",
		want:   "spec.affinity.podAntiAffinity: Invalid value: must have weights of 1 to 100; write weight: 100 for the strongest preference",
	},
	"a term without topology": {
		change: "spec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}}",
		want:   "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value",
	},
	"a number as annotation": {
		change: "spec: {loadBalancerService: {annotations: {a: 1}}}",
		want:   `spec.loadBalancerService.annotations.a: Invalid value: "integer": spec.loadBalancerService.annotations.a in body must be of type string: "integer"`,
	},
	"a permission without a user or a role": {
		change: "spec: {permissions: [{may: [start]}]}",
		want:   "spec.permissions[0]: Invalid value: must have exactly one of user and role; write two permissions to grant to both",
	},
	"a permission for two": {
		change: "spec: {permissions: [{user: a, role: b}]}",
		want:   "spec.permissions[0]: Invalid value: must have exactly one of user and role; write two permissions to grant to both",
	},
	"an unknown action": {
		change: "spec: {permissions: [{user: a, may: [fly]}]}",
		want:   `spec.permissions[0].may[0]: Unsupported value: "fly": supported values: "start", "stop", "reset", "accessConsole", "takeConsole", "*"`,
	},
	"an unknown retention": {
		change: "spec: {diskRetention: Keep}",
		want:   `spec.diskRetention: Unsupported value: "Keep": supported values: "Retain", "Delete"`,
	},
	"a list as user data": {
		change: "spec: {cloudInit: {userData: [a]}}",
		want:   `spec.cloudInit.userData: Invalid value: "array": spec.cloudInit.userData in body must be of type object: "array"`,
	},
	"a text as network config": {
		change: "spec: {cloudInit: {networkConfig: a}}",
		want:   `spec.cloudInit.networkConfig: Invalid value: "string": spec.cloudInit.networkConfig in body must be of type object: "string"`,
	},
	"two sources of user data": {
		change: "spec: {cloudInit: {userData: {}, userDataFrom: {secretKeyRef: {name: a, key: b}}}}",
		want:   "spec.cloudInit: Invalid value: must have only one of userData and userDataFrom; remove one",
	},
	"two network configs": {
		change: "spec: {cloudInit: {networkConfig: {}, networkConfigFrom: {secretKeyRef: {name: a, key: b}}}}",
		want:   "spec.cloudInit: Invalid value: must have only one of networkConfig and networkConfigFrom; remove one",
	},
	"no Secret": {
		change: "spec: {cloudInit: {userDataFrom: {}}}",
		want:   "spec.cloudInit.userDataFrom.secretKeyRef: Required value",
	},
	"no key": {
		change: "spec: {cloudInit: {userDataFrom: {secretKeyRef: {name: a}}}}",
		want:   "spec.cloudInit.userDataFrom.secretKeyRef.key: Required value",
	},
	"a Secret in upper case": {
		change: "spec: {cloudInit: {userDataFrom: {secretKeyRef: {name: A, key: b}}}}",
		want:   `spec.cloudInit.userDataFrom.secretKeyRef.name: Invalid value: "A": must be the name of a Secret, lower-case letters, digits, '-' and '.', for example web-1-user-data`,
	},
	"a path as key": {
		change: "spec: {cloudInit: {userDataFrom: {secretKeyRef: {name: a, key: ../b}}}}",
		want:   `spec.cloudInit.userDataFrom.secretKeyRef.key: Invalid value: "../b": must be a key of the Secret, letters, digits, '-', '_' and '.', for example user-data`,
	},
	"an unknown policy": {
		change: "spec: {cloudInit: {instanceIDPolicy: Always}}",
		want:   `spec.cloudInit.instanceIDPolicy: Unsupported value: "Always": supported values: "OnDataChange", "Stable", "PerResourceVersion"`,
	},
	"a field that does not exist": {
		change: "spec: {vm: {maximumCPUs: 1}}",
		want:   `VirtualMachine in version "v1" cannot be handled as a VirtualMachine: strict decoding error: unknown field "spec.vm.maximumCPUs"`,
	},
	"a field of another operator": {
		change: "spec: {running: true}",
		want:   `VirtualMachine in version "v1" cannot be handled as a VirtualMachine: strict decoding error: unknown field "spec.running"`,
	},
	"metadata of another type": {
		change: "spec: {cloudInit: {metaData: {a: [b]}}}",
		want:   `spec.cloudInit.metaData.a: Invalid value: "array": spec.cloudInit.metaData.a in body must be of type string: "array"`,
	},
	"a template of another type": {
		change: "spec: {runnerTemplate: {update: 1}}",
		want:   `spec.runnerTemplate.update: Invalid value: "integer": spec.runnerTemplate.update in body must be of type boolean: "integer"`,
	},
	"a shutdown of another type": {
		change: "spec: {guestShutdownStops: sometimes}",
		want:   `spec.guestShutdownStops: Invalid value: "string": spec.guestShutdownStops in body must be of type boolean: "string"`,
	},
	"logging properties as object": {
		change: "spec: {loggingProperties: {}}",
		want:   `spec.loggingProperties: Invalid value: "object": spec.loggingProperties in body must be of type string: "object"`,
	},
}
