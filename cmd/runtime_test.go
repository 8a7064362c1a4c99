package cmd

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmruntime"
)

func TestEveryFlagOfTheRuntimeIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/smolvm-runtime.md")
	if err != nil {
		t.Fatal(err)
	}
	page, _, _ := strings.Cut(string(text), "\n## smolvm as a child")
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`--[^|]+) \\| ([^|]*) \\|").FindAllStringSubmatch(page, -1) {
		for _, name := range regexp.MustCompile("--([a-z-]+)").FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = strings.Trim(row[2], "`")
		}
	}
	newRuntime().Flags().VisitAll(func(f *pflag.Flag) {
		want := f.DefValue
		switch {
		case want == "":
			want = "empty"
		case f.Name == flagServeCommand:
			want = "smolvm serve start --listen unix://` and the socket"
		}
		if got, ok := documented[f.Name]; !ok || got != want {
			t.Errorf("docs/smolvm-runtime.md says that the default of --%s is %q, it is %q", f.Name, got, want)
		}
		delete(documented, f.Name)
	})
	for name := range documented {
		t.Errorf("docs/smolvm-runtime.md has --%s, which is no flag", name)
	}
	for _, variable := range runtimeVariables {
		if !strings.Contains(page, "`"+variable+"`") {
			t.Errorf("docs/smolvm-runtime.md does not have %s", variable)
		}
	}
}

// TestSettingsOfTheRuntimeThatCannotBeFollowed end the command with code 2 and a sentence.
func TestSettingsOfTheRuntimeThatCannotBeFollowed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for sentence, test := range map[string]struct {
		environment map[string]string
		arguments   []string
		want        string
	}{
		"no name of the node":   {map[string]string{"NODE_NAME": ""}, []string{"--insecure-no-auth"}, "NODE_NAME is required"},
		"another's name":        {map[string]string{"NODE_NAME": "../b"}, []string{"--insecure-no-auth"}, `NODE_NAME "../b" is not the name of a Node`},
		"no address":            {map[string]string{"POD_IP": "pod"}, []string{"--insecure-no-auth"}, `POD_IP "pod" is not an address`},
		"nothing for clients":   {nil, nil, "set --token-file, SMOLVM_RUNTIME_TOKEN or --controller-service-account, or --insecure-no-auth"},
		"an empty token":        {nil, []string{"--token-file=" + empty}, "the token for clients is empty: put one into " + empty},
		"a missing token":       {nil, []string{"--token-file=" + empty + "s"}, "the token for clients cannot be read: "},
		"a white token":         {map[string]string{"SMOLVM_RUNTIME_TOKEN": " \n"}, nil, "set --token-file"},
		"no ServiceAccount":     {nil, []string{"--controller-service-account=x"}, `--controller-service-account: "x" is not namespace/name`},
		"no audience":           {nil, []string{"--controller-service-account=a/x", "--token-review-audience="}, "--token-review-audience is empty"},
		"no address to bind to": {nil, []string{"--insecure-no-auth", "--bind-address=9443"}, `--bind-address: "9443" is not ADDRESS:PORT`},
		"too high a port":       {nil, []string{"--insecure-no-auth", "--bind-address=:65536"}, `--bind-address: ":65536" has no port from 0 to 65535`},
		"metrics at nowhere":    {nil, []string{"--insecure-no-auth", "--metrics-bind-address=x"}, "--metrics-bind-address:"},
		"half of a certificate": {nil, []string{"--insecure-no-auth", "--tls-cert-file=a"}, "set both --tls-cert-file and --tls-private-key-file"},
		"an unknown policy":     {nil, []string{"--insecure-no-auth", "--orphan-cleanup-policy=all"}, `--orphan-cleanup-policy "all" is not report, delete or none`},
		"too rare reports":      {nil, []string{"--insecure-no-auth", "--report-interval=2m"}, "--report-interval 2m0s is not between 1s and 1m30s"},
		"a negative patience":   {nil, []string{"--insecure-no-auth", "--hang-timeout=-1s"}, "--hang-timeout -1s is negative"},
		"a relative socket":     {nil, []string{"--insecure-no-auth", "--smolvm-api-socket=s"}, `--smolvm-api-socket "s" is not an absolute path`},
		"a relative directory":  {nil, []string{"--insecure-no-auth", "--state-directory=s"}, `--state-directory "s" is not an absolute path`},
		"less than nothing":     {nil, []string{"--insecure-no-auth", "--capacity-cpus=-1"}, "a capacity is negative"},
		"no number":             {map[string]string{"CAPACITY_CPUS": "2.5"}, []string{"--insecure-no-auth"}, "the variable CAPACITY_CPUS: "},
		"several mistakes":      {map[string]string{"NODE_NAME": ""}, []string{"--state-directory=s"}, "NODE_NAME is required\n--state-directory"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Setenv("NODE_NAME", "node-1")
			for name, value := range test.environment {
				t.Setenv(name, value)
			}
			c := newRuntime()
			c.SetArgs(test.arguments)
			c.SilenceErrors, c.SilenceUsage = true, true
			err := c.ExecuteContext(t.Context())
			var exit *runner.ExitError
			if !errors.As(err, &exit) || exit.Code != 2 || !strings.Contains(exit.Message, test.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestSettingsOfTheRuntime(t *testing.T) {
	environment := map[string]string{
		"NODE_NAME": "node-1", "POD_NAME": "pod", "POD_NAMESPACE": "smolvm", "POD_IP": "192.0.2.7", "SMOLVM_RUNTIME_TOKEN": "secret\n",
		"SMOLVM_RUNTIME_VERSION": "1.2.3", "CAPACITY_CPUS": "4", "CAPACITY_MEMORY_MIB": "0", "CAPACITY_STORAGE_GIB": "",
	}
	load := func(environment map[string]string, arguments ...string) smolvmruntime.Settings {
		t.Helper()
		fs := newRuntime().Flags()
		if err := fs.Parse(arguments); err != nil {
			t.Fatal(err)
		}
		s, err := loadRuntime(fs, func(name string) (string, bool) { value, ok := environment[name]; return value, ok })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
		return s
	}
	s := load(environment, "--smolvm-api-socket=/run/x.sock")
	if s.Node != "node-1" || s.PodName != "pod" || s.PodNamespace != "smolvm" || s.PodIP != "192.0.2.7" || s.Token != "secret" || s.Version != "1.2.3" {
		t.Errorf("%+v", s)
	}
	if s.CapacityCPUs != 4 || s.CapacityMemoryMiB != 0 || s.CapacityStorageGiB != 0 || s.ReportInterval != time.Minute || s.Orphans != smolvmruntime.OrphansNone || s.ExposeGuestStreams {
		t.Errorf("%+v", s)
	}
	if !slices.Equal(s.Command, []string{"smolvm", "serve", "start", "--listen", "unix:///run/x.sock"}) {
		t.Errorf("the command is %q", s.Command)
	}
	s = load(map[string]string{"NODE_NAME": "node-1", "CAPACITY_CPUS": "4"}, "--capacity-cpus=2", "--expose-guest-streams", "--orphan-cleanup-policy=report", "--insecure-no-auth", "--smolvm-serve-command=")
	if s.CapacityCPUs != 2 || len(s.Command) != 0 || s.PodNamespace != "default" || s.Version != "unknown" || s.BindAddress != ":9443" || !s.ExposeGuestStreams || s.Orphans != smolvmruntime.OrphansReport {
		t.Errorf("%+v", s)
	}
	if s = load(map[string]string{"NODE_NAME": "n"}, "--insecure-no-auth"); !slices.Equal(s.Command, strings.Fields(newRuntime().Flag(flagServeCommand).DefValue)) {
		t.Errorf("the default is another command: %q", s.Command)
	}
}
