package cmd

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/flag"
)

// execute runs a program by its name and returns what it prints and its error.
func execute(program string, args ...string) (string, error) {
	var out bytes.Buffer
	c := Called(program)
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

// forget removes the variables of all settings for the time of a test.
func forget(t *testing.T) {
	t.Helper()
	fs := pflag.NewFlagSet("machines", pflag.ContinueOnError)
	flag.RegisterMachines(fs)
	fs.VisitAll(func(f *pflag.Flag) { t.Setenv(flag.MachinesVariable(f.Name), "") })
}

// TestProgramIsTheCommandByItsName: kubevirt-operator has the flags and the errors of kvm-operator machines.
func TestProgramIsTheCommandByItsName(t *testing.T) {
	forget(t)
	for _, c := range []struct {
		program string
		args    []string
	}{
		{"/opt/kvm-operator/kvm-operator", []string{"machines"}}, {"/opt/kvm-operator/kubevirt-operator", nil}, {"kubevirt-operator.exe", nil},
	} {
		help, err := execute(c.program, append(slices.Clone(c.args), "--help")...)
		if err != nil || !strings.Contains(help, "--reconcile-interval") || !strings.Contains(help, "Examples:") {
			t.Errorf("%s --help: %v\n%s", c.program, err, help)
		}
		out, err := execute(c.program, append(slices.Clone(c.args), "--reconcile-interval=30")...)
		const want = `--reconcile-interval is "30" and has to be a time with its unit from 1s to 24h, such as 30s`
		if err == nil || err.Error() != want || out != "" {
			t.Errorf("%s prints %q and ends with %v", c.program, out, err)
		}
	}
	if out, err := execute("kubevirt-operator", "version"); err != nil || !strings.Contains(out, "version: ") {
		t.Errorf("version: %v\n%s", err, out)
	}
	if help, err := execute("other", "--help"); err != nil || !strings.Contains(help, "daemon") {
		t.Errorf("another name is not kvm-operator: %v", err)
	}
}

// TestMachinesEndsWithASentence: what is wrong is found before the API server is asked for anything.
func TestMachinesEndsWithASentence(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cluster := write("cluster", `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","namespace":"n"}}],"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}]}`)
	for name, c := range map[string]struct {
		variables map[string]string
		want      string
	}{
		"a wrong variable":             {map[string]string{"MAX_CONCURRENT_RECONCILES": "0"}, `MAX_CONCURRENT_RECONCILES is "0" and has to be a whole number from 1 to 100, such as 5`},
		"no cluster":                   {nil, "KUBECONFIG is not set and this does not run in a pod: set it, or --kubeconfig, to the path of a kubeconfig"},
		"a kubeconfig that is missing": {map[string]string{"KUBECONFIG": "/does/not/exist"}, `KUBECONFIG (--kubeconfig) is "/does/not/exist" and has to be the path of a kubeconfig: stat`},
		"one of several is missing":    {map[string]string{"KUBECONFIG": cluster + ":/does/not/exist"}, "has to be the path of a kubeconfig: stat /does/not/exist"},
		"a kubeconfig of nothing":      {map[string]string{"KUBECONFIG": write("nothing", "")}, "has to be the path of a kubeconfig: invalid configuration"},
		"a kubeconfig of other text":   {map[string]string{"KUBECONFIG": write("text", "[")}, "has to be the path of a kubeconfig: "},
		"a port in use":                {map[string]string{"KUBECONFIG": cluster, "METRICS_BIND_ADDRESS": taken.Addr().String()}, "address already in use"},
		"TLS without files": {map[string]string{"KUBECONFIG": cluster, "METRICS_CERT_PATH": "/does/not/exist"},
			"METRICS_CERT_PATH (--metrics-cert-path) is set, so /does/not/exist/tls.crt has to be a certificate in PEM and /does/not/exist/tls.key its key; leave it empty for metrics by plain HTTP: open /does/not/exist/tls.crt: no such file"},
		"TLS with other files": {map[string]string{"KUBECONFIG": cluster, "METRICS_CERT_PATH": filepath.Dir(cluster), "METRICS_CERT_NAME": "cluster", "METRICS_CERT_KEY": "cluster"},
			cluster + " has to be a certificate in PEM and " + cluster + " its key; leave it empty for metrics by plain HTTP: tls: failed to find any PEM data"},
		"TLS at the address of probes": {map[string]string{"KUBECONFIG": cluster, "METRICS_CERT_PATH": "/does/not/exist", "METRICS_BIND_ADDRESS": "127.0.0.1:0"},
			`METRICS_CERT_PATH (--metrics-cert-path) is set, so "127.0.0.1:0" is served by TLS alone, but the kubelet probes by plain HTTP: METRICS_BIND_ADDRESS (--metrics-bind-address) and HEALTH_PROBE_BIND_ADDRESS (--health-probe-bind-address) have to be different`},
		"a file of templates": {map[string]string{"TEMPLATES_FILE": "/does/not/exist"}, "the file of templates /does/not/exist (--templates-file or TEMPLATES_FILE)"},
	} {
		t.Run(name, func(t *testing.T) {
			forget(t)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			t.Setenv("HEALTH_PROBE_BIND_ADDRESS", "127.0.0.1:0")
			for variable, value := range c.variables {
				t.Setenv(variable, value)
			}
			_, err := execute("kubevirt-operator")
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v, want one line with %s", err, c.want)
			}
		})
	}
}

func TestTheLeaseIsInTheNamespaceOfTheKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for namespace, want := range map[string]string{`,"namespace":"team"`: "team", "": "default"} {
		text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"` + namespace +
			`}}],"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}]}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at, err := machinesConnection(path)
		if err != nil || at.namespace != want || at.rest.Host != "https://127.0.0.1:1" {
			t.Errorf("it is %+v, want the namespace %s; err %v", at, want, err)
		}
	}
}

// TestEverySettingOfMachinesIsDocumented compares the table of docs/machines-operation.md with the settings.
func TestEverySettingOfMachinesIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/machines-operation.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| `--([a-z-]+)`[^|]* \\| (?:`([^`]*)`)? ?\\|")
	documented := map[string]string{}
	for _, found := range row.FindAllStringSubmatch(string(page), -1) {
		documented[found[1]+" "+found[2]] = found[3]
	}
	fs := pflag.NewFlagSet("machines", pflag.ContinueOnError)
	flag.RegisterMachines(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		name := flag.MachinesVariable(f.Name) + " " + f.Name
		standard, ok := documented[name]
		if !ok || standard != f.DefValue {
			t.Errorf("the page says that the default of %s is %q (there: %t), it is %q", name, standard, ok, f.DefValue)
		}
		delete(documented, name)
	})
	if len(documented) > 0 {
		t.Errorf("the page has what is no setting: %v", documented)
	}
}
