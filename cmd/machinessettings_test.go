package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// machinesFlags returns the settings of kvm-operator machines with some flags and variables, and what is wrong with them.
func machinesFlags(t *testing.T, variables map[string]string, args ...string) (reader, error) {
	t.Helper()
	fs := pflag.NewFlagSet("machines", pflag.ContinueOnError)
	flag.RegisterMachines(fs)
	if err := fs.Parse(args); err != nil {
		return reader{fs}, wrongFlag(nil, err)
	}
	return reader{fs}, loadMachines(fs, func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
}

// TestDefaultsOfMachinesAreThoseOfTheReferencePage has the table of the page, and what vitistack's operator has beyond it.
func TestDefaultsOfMachinesAreThoseOfTheReferencePage(t *testing.T) {
	want := map[string]string{
		"KUBECONFIG": "", "RECONCILE_INTERVAL": "30s", "MAX_CONCURRENT_RECONCILES": "5", "METRICS_BIND_ADDRESS": ":8080",
		"METRICS_CERT_PATH": "", "METRICS_CERT_NAME": "tls.crt", "METRICS_CERT_KEY": "tls.key",
		"HEALTH_PROBE_BIND_ADDRESS": ":8081", "LEADER_ELECTION": "true", "NAMESPACE": "",
		"CPU_MODEL": "", "NETWORK_ATTACHMENT_DEFINITION_CNI_VERSION": "1.0.0", "MANAGED_BY": "kubevirt-operator",
		"PVC_VOLUME_MODE": "Block", "PVC_ACCESS_MODE": "ReadWriteMany", "STORAGE_CLASS_NAME": "", "MAC_SET": "12", "LOG_LEVEL": "info",
		"TEMPLATES_FILE": "",
	}
	r, err := machinesFlags(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	r.VisitAll(func(f *pflag.Flag) { got[flag.MachinesVariable(f.Name)] = f.DefValue })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults by variable (-want +got):\n%s", diff)
	}
	settings, err := machinesSettings(r)
	if diff := cmp.Diff(vitistack.Settings{
		ManagedBy: "kubevirt-operator", AccessMode: "ReadWriteMany", VolumeMode: "Block", MACSet: 0x12, CNIVersion: "1.0.0",
	}, settings); err != nil || diff != "" {
		t.Errorf("settings (%v):\n%s", err, diff)
	}
}

func TestAFlagBeatsTheEnvironmentAndThatTheDefault(t *testing.T) {
	for name, c := range map[string]struct {
		variables map[string]string
		args      []string
		want      time.Duration
	}{
		"neither":                     {nil, nil, 30 * time.Second},
		"a variable":                  {map[string]string{"RECONCILE_INTERVAL": "1m"}, nil, time.Minute},
		"an empty variable":           {map[string]string{"RECONCILE_INTERVAL": ""}, nil, 30 * time.Second},
		"a flag":                      {nil, []string{"--reconcile-interval=2m"}, 2 * time.Minute},
		"both":                        {map[string]string{"RECONCILE_INTERVAL": "1m"}, []string{"--reconcile-interval=2m"}, 2 * time.Minute},
		"a flag and a wrong variable": {map[string]string{"RECONCILE_INTERVAL": "soon"}, []string{"--reconcile-interval=2m"}, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := machinesFlags(t, c.variables, c.args...)
			if err != nil || r.duration(flag.MachinesInterval) != c.want {
				t.Errorf("the interval is %s, want %s; err %v", r.duration(flag.MachinesInterval), c.want, err)
			}
		})
	}
}

func TestTheFormerFlagOfLeaderElectionWorks(t *testing.T) {
	r, err := machinesFlags(t, nil, "--leader-elect=false")
	if err != nil || r.yes(flag.MachinesElection) {
		t.Errorf("it is %t, %v", r.yes(flag.MachinesElection), err)
	}
}

// TestAWrongSettingIsNamedWithTheWayOut: each mistake gets one sentence, which names the variable or flag.
func TestAWrongSettingIsNamedWithTheWayOut(t *testing.T) {
	for setting, must := range map[string]string{
		"RECONCILE_INTERVAL=30":                       "a time with its unit from 1s to 24h, such as 30s",
		"RECONCILE_INTERVAL=10ms":                     "a time with its unit from 1s to 24h, such as 30s",
		"--reconcile-interval=30":                     "a time with its unit from 1s to 24h, such as 30s",
		"--reconcile-interval=48h0m0s":                "a time with its unit from 1s to 24h, such as 30s",
		"MAX_CONCURRENT_RECONCILES=0":                 "a whole number from 1 to 100, such as 5",
		"MAX_CONCURRENT_RECONCILES=many":              "a whole number from 1 to 100, such as 5",
		"--max-concurrent-reconciles=101":             "a whole number from 1 to 100, such as 5",
		"METRICS_CERT_NAME=sub/tls.crt":               "the name of a file, such as tls.crt",
		"--metrics-cert-key=":                         "the name of a file, such as tls.key",
		"METRICS_BIND_ADDRESS=localhost":              "an address with a port, such as :8080 or 127.0.0.1:8080, or 0 for none",
		"METRICS_BIND_ADDRESS=8080":                   "an address with a port, such as :8080 or 127.0.0.1:8080, or 0 for none",
		"METRICS_BIND_ADDRESS=http://:80":             "an address with a port, such as :8080 or 127.0.0.1:8080, or 0 for none",
		"HEALTH_PROBE_BIND_ADDRESS=:99999":            "an address with a port, such as :8081 or 127.0.0.1:8081, or 0 for none",
		"HEALTH_PROBE_BIND_ADDRESS=:":                 "an address with a port, such as :8081 or 127.0.0.1:8081, or 0 for none",
		"LEADER_ELECTION=yes":                         "true or false",
		"NAMESPACE=Kube":                              "the name of a namespace, such as kubevirt-operator-system",
		"LOG_LEVEL=verbose":                           "one of debug, error, info, warn",
		"MANAGED_BY=a b":                              "the value of a label, such as kubevirt-operator",
		"--managed-by=":                               "the value of a label, such as kubevirt-operator",
		"STORAGE_CLASS_NAME=Fast":                     "the name of a StorageClass, such as fast",
		"PVC_ACCESS_MODE=RWX":                         "one of ReadWriteOnce, ReadWriteMany, ReadOnlyMany",
		"PVC_VOLUME_MODE=block":                       "Filesystem or Block",
		"CPU_MODEL=host model":                        "a CPU model of KubeVirt, such as host-model or host-passthrough",
		"MAC_SET=xyz":                                 "two hexadecimal digits, such as 12",
		"MAC_SET=123":                                 "two hexadecimal digits, such as 12",
		"NETWORK_ATTACHMENT_DEFINITION_CNI_VERSION=1": "a version of the CNI specification, such as 1.0.0",
	} {
		t.Run(setting, func(t *testing.T) {
			name, value, _ := strings.Cut(setting, "=")
			var args []string
			variables := map[string]string{name: value}
			if strings.HasPrefix(name, "--") {
				args, variables = []string{setting}, nil
			}
			_, err := machinesFlags(t, variables, args...)
			if want := name + ` is "` + value + `" and has to be ` + must; err == nil || err.Error() != want {
				t.Errorf("the error is %v, want %s", err, want)
			}
		})
	}
}

func TestOddSettingsOfMachinesAreAccepted(t *testing.T) {
	for name, value := range map[string]string{
		"METRICS_BIND_ADDRESS": "0", "HEALTH_PROBE_BIND_ADDRESS": "[::1]:8081", "MAC_SET": "0xaF", "CPU_MODEL": "Opteron_G5", "LEADER_ELECTION": "False",
	} {
		if _, err := machinesFlags(t, map[string]string{name: value}); err != nil {
			t.Error(err)
		}
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, err := machinesFlags(t, map[string]string{"RECONCILE_INTERVAL": "30", "MAC_SET": "xyz"})
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("the error is %v, want two lines", err)
	}
}

// templatesFrom returns the settings with a file of templates.
func templatesFrom(t *testing.T, text string) (vitistack.Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "templates.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := machinesFlags(t, nil, "--templates-file="+path)
	if err != nil {
		t.Fatal(err)
	}
	return machinesSettings(r)
}

func TestTemplatesAreWrittenAsInAMachine(t *testing.T) {
	settings, err := templatesFrom(t, `
xlarge:
  cpu: {cores: 8, sockets: 2}
  memory: {size: 32Gi}
  disks:
    - {size: 160Gi, storageClass: fast}
    - {name: data, size: 1Ti, accessMode: ReadWriteMany, volumeMode: Block}
`)
	want := vitistack.Template{
		CPU: v1alpha1.CPU{Cores: 8, Threads: 1, Sockets: 2}, Memory: "32Gi",
		Disks: []v1alpha1.Disk{
			{Name: "root", Size: "160Gi", StorageClass: "fast"}, {Name: "data", Size: "1Ti", AccessMode: "ReadWriteMany", VolumeMode: "Block"},
		},
	}
	if diff := cmp.Diff(want, settings.Templates["xlarge"]); err != nil || diff != "" {
		t.Errorf("the template (%v):\n%s", err, diff)
	}
	if settings, err := templatesFrom(t, ""); err != nil {
		t.Errorf("an empty file: %v, %v", settings.Templates, err)
	}
}

func TestWrongTemplatesAreNamedWithTheWayOut(t *testing.T) {
	const memory, disks = "memory: {size: 1Gi}", "disks: [{size: 1Gi}]"
	for text, want := range map[string]string{
		"[]":                            "has to be YAML with templates by name",
		"small: {memory: {size: 64Gi}}": `template "small": is built in and cannot be changed; choose another name`,
		"X Large: {}":                   `template "X Large": a name has small letters`,
		"x: {cores: 8}":                 `unknown field "cores"`,
		"x: {" + memory + "}":           `template "x": there are 0 disks and have to be 1 to 32`,
		"x: {" + disks + "}":            `template "x": memory.size is "" and has to be a quantity of more than zero, such as 16Gi`,
		"x: {memory: {size: -1Gi}, " + disks + "}":                      `template "x": memory.size is "-1Gi"`,
		"x: {" + memory + ", cpu: {cores: 300}, " + disks + "}":         `template "x": cpu.cores is 300 and has to be 1 to 256`,
		"x: {" + memory + ", cpu: {threads: -1}, " + disks + "}":        `template "x": cpu.threads is -1 and has to be 1 to 8`,
		"x: {" + memory + ", disks: [{size: 1Gi}, {size: 1Gi}]}":        `template "x": disks: there are two of the name root`,
		"x: {" + memory + ", disks: [{}]}":                              `template "x": disk root: size is ""`,
		"x: {" + memory + ", disks: [{name: A, size: 1Gi}]}":            `template "x": disks: the name "A" has to have small letters`,
		"x: {" + memory + ", disks: [{size: 1Gi, accessMode: RWO}]}":    `template "x": disk root: accessMode is "RWO"`,
		"x: {" + memory + ", disks: [{size: 1Gi, volumeMode: raw}]}":    `template "x": disk root: volumeMode is "raw"`,
		"x: {" + memory + ", disks: [{size: 1Gi, storageClass: Fast}]}": `template "x": disk root: storageClass is "Fast"`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := templatesFrom(t, text)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "(--templates-file or TEMPLATES_FILE)") {
				t.Errorf("the error is %v, want it to say %s", err, want)
			}
		})
	}
}

func TestAFileOfTemplatesThatCannotBeReadIsNamed(t *testing.T) {
	for path, want := range map[string]string{
		"/does/not/exist": "has to be one that can be read", "/dev/zero": "has to be a file of at most", t.TempDir(): "has to be a file of at most",
	} {
		r, err := machinesFlags(t, map[string]string{"TEMPLATES_FILE": path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := machinesSettings(r); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to say %s", err, want)
		}
	}
}

func FuzzTemplates(f *testing.F) {
	f.Add([]byte("xlarge: {cpu: {cores: 8}, memory: {size: 32Gi}, disks: [{size: 160Gi}]}"))
	f.Add([]byte("x: {disks: [null]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		templates, err := parseTemplates(text)
		if err != nil {
			return
		}
		for name, template := range templates {
			if q, err := template.Memory.Parse(); err != nil || q.Sign() <= 0 || template.CPU.Cores < 1 || len(template.Disks) == 0 {
				t.Errorf("template %q is %+v", name, template)
			}
		}
	})
}
