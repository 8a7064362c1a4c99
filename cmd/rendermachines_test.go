package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	buildAgent = `
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: build-agent}
spec:
  template: medium
  networks: [{name: eth0, networkName: lan}]
  cloudInit: {secretRef: {name: boot}}
`
	ofBuildAgent = `
---
{apiVersion: vitistack.io/v1alpha1, kind: NetworkConfiguration, metadata: {name: lan}, spec: {vlan: 7}}
---
{apiVersion: v1, kind: Secret, metadata: {name: boot}, stringData: {userdata: the-password}}
`
	classic = `
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: node-7, namespace: infra}
spec: {provider: kubevirt, machineClass: big, disks: [{sizeGB: 40, boot: true}]}
---
{apiVersion: vitistack.io/v1alpha1, kind: MachineClass, metadata: {name: big}, spec: {enabled: true, cpu: {cores: 8}, memory: {quantity: 32Gi}}}
`
)

// TestMachinesOfKubeVirtAreRendered: everything that a Machine needs comes from the files.
func TestMachinesOfKubeVirtAreRendered(t *testing.T) {
	network := "NetworkAttachmentDefinition default/lan"
	all := []string{network, "PersistentVolumeClaim default/build-agent-root", "Secret default/build-agent-cloudinit", "VirtualMachine default/build-agent"}
	standard := "\n---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: x}\n"
	for name, test := range map[string]struct {
		stdin   string
		args    []string
		want    []string
		failure string
	}{
		"with all that it names":      {buildAgent + ofBuildAgent, nil, all, ""},
		"one handler":                 {buildAgent + ofBuildAgent, []string{"--handler=virtualmachine"}, all[3:], ""},
		"a NetworkConfiguration":      {ofBuildAgent, nil, all[:1], ""},
		"in fields of vitistack":      {classic, nil, []string{"PersistentVolumeClaim infra/node-7-root", "VirtualMachine infra/node-7"}, ""},
		"beside a KVMConfig":          {minimal(t) + "\n---" + classic, []string{"--handler=namespace,storage"}, []string{"Namespace ab1cd", "PersistentVolumeClaim infra/node-7-root"}, ""},
		"without what it names":       {buildAgent, nil, nil, "Machine default/build-agent: NetworkConfiguration default/lan not found; create it, or change spec.networks; key userdata of Secret default/boot not found; create it, or change spec.cloudInit"},
		"no default class among some": {buildAgent + ofBuildAgent + standard, nil, all[:1], "Machine default/build-agent: disk root names no StorageClass and the cluster has no default one; set the disk's storageClass, or the annotation storageclass.kubernetes.io/is-default-class on a class"},
		"an unknown template":         {strings.Replace(buildAgent, "medium", "huge", 1) + ofBuildAgent, nil, all[:1], `Machine default/build-agent: template "huge" is unknown; there are small, medium, large`},
		"with its own address":        {strings.Replace(buildAgent, "networkName: lan", "networkName: lan, macAddress: 52:54:00:aa:00:01", 1) + ofBuildAgent, nil, all, ""},
		"compared with a cluster":     {buildAgent, []string{"--diff"}, nil, "--diff cannot compare Machines and NetworkConfigurations; leave it out, or leave them out"},
	} {
		out, failure := run(t, test.stdin, append([]string{"render", "-f", "-"}, test.args...)...)
		if diff := cmp.Diff([]any{test.want, test.failure}, []any{printed(t, out), failure}); diff != "" {
			t.Errorf("%s: objects and error (-want +got):\n%s", name, diff)
		}
		if strings.Contains(out, "the-password") {
			t.Errorf("%s: the data of a Secret is shown", name)
		}
	}
	_, failure := run(t, strings.Replace(buildAgent, "template:", "templat:", 1), "render", "-f", "-")
	if want := "-: Machine build-agent is not valid: spec.templat: there is no such field"; !strings.HasPrefix(failure, want) {
		t.Errorf("a misspelt field: %q", failure)
	}
}

// TestMachinesAreRenderedWithTheSettingsOfTheirOperator: every setting that objects depend on is a flag and a variable.
func TestMachinesAreRenderedWithTheSettingsOfTheirOperator(t *testing.T) {
	templates := filepath.Join(t.TempDir(), "templates.yaml")
	if err := os.WriteFile(templates, []byte("huge: {cpu: {cores: 32}, memory: {size: 1Ti}, disks: [{size: 9Ti}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	form, huge := buildAgent+ofBuildAgent, strings.Replace(buildAgent, "medium", "huge", 1)+ofBuildAgent
	for name, test := range map[string]struct {
		stdin, flag, variable string
		value, want           string
	}{
		"the label":          {form, "--managed-by", "MANAGED_BY", "someone", "vitistack.io/managed-by: someone"},
		"templates":          {huge, "--templates-file", "TEMPLATES_FILE", templates, "storage: 9Ti"},
		"the StorageClass":   {form, "--storage-class-name", "STORAGE_CLASS_NAME", "fast", "storageClassName: fast"},
		"the access mode":    {classic, "--pvc-access-mode", "PVC_ACCESS_MODE", "ReadOnlyMany", "- ReadOnlyMany"},
		"the volume mode":    {classic, "--pvc-volume-mode", "PVC_VOLUME_MODE", "Filesystem", "volumeMode: Filesystem"},
		"the CPU model":      {form, "--cpu-model", "CPU_MODEL", "host-passthrough", "model: host-passthrough"},
		"MAC addresses":      {form, "--mac-set", "MAC_SET", "af", "macAddress: 02:af:"},
		"the version of CNI": {form, "--network-attachment-definition-cni-version", "NETWORK_ATTACHMENT_DEFINITION_CNI_VERSION", "0.4.0", `"cniVersion":"0.4.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			if out, failure := run(t, test.stdin, "render", "-f", "-", test.flag+"="+test.value); !strings.Contains(out, test.want) {
				t.Errorf("with the flag, %q is not in (%s)\n%s", test.want, failure, out)
			}
			t.Setenv(test.variable, test.value)
			if out, failure := run(t, test.stdin, "render", "-f", "-"); !strings.Contains(out, test.want) {
				t.Errorf("with the variable, %q is not in (%s)\n%s", test.want, failure, out)
			}
			t.Setenv(test.variable, "*")
			if _, failure := run(t, test.stdin, "render", "-f", "-"); !strings.Contains(failure, test.variable) {
				t.Errorf("the error for a wrong variable is %q", failure)
			}
			if _, failure := run(t, test.stdin, "render", "-f", "-", test.flag+"="+test.value); failure != "" {
				t.Errorf("a flag beside a wrong variable: %s", failure)
			}
		})
	}
}
