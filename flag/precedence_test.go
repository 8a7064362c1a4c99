package flag_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/kvm-operator/kvm-operator/flag"
)

// setup writes files into two directories and returns flags that are parsed from args. The first directory is searched
// first.
func setup(t *testing.T, files map[string]string, args ...string) (*pflag.FlagSet, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fs := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	flag.Register(fs, "runner:1", "vm-runner:1")
	dirs := "--config.dirs=" + filepath.Join(dir, "a") + "," + filepath.Join(dir, "b")
	if err := fs.Parse(append([]string{dirs}, args...)); err != nil {
		t.Fatal(err)
	}
	return fs, dir
}

// environment returns an environment that holds only these variables.
func environment(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}

func text(t *testing.T, fs *pflag.FlagSet, key string) string {
	t.Helper()
	f := fs.Lookup(key)
	if f == nil {
		t.Fatalf("there is no setting %s", key)
	}
	return f.Value.String()
}

// TestWhereSettingsComeFrom: a flag overrides the environment, the environment overrides files, and later files
// override earlier ones.
func TestWhereSettingsComeFrom(t *testing.T) {
	const domain = flag.RegistryDomain
	variable := map[string]string{"SERVICE_REGISTRY_DOMAIN": "environment"}
	one := map[string]string{"a/config.yml": "service: {registry: {domain: file}}"}
	two := map[string]string{"a/config.yml": "service: {registry: {domain: first}}", "a/secret.yml": "service: {registry: {domain: second}}"}
	for name, test := range map[string]struct {
		files       map[string]string
		args        []string
		environment map[string]string
		want        string
	}{
		"nothing given: the default":          {want: "registry.k8s.io"},
		"a file beats the default":            {files: one, args: []string{"--config.files=config"}, want: "file"},
		"a file that is not named is nothing": {files: one, want: "registry.k8s.io"},
		"the environment beats the default":   {environment: variable, want: "environment"},
		"the environment beats a file":        {files: one, args: []string{"--config.files=config"}, environment: variable, want: "environment"},
		"a flag beats a file":                 {files: one, args: []string{"--config.files=config", "--service.registry.domain=flag"}, want: "flag"},
		"a flag beats the environment":        {args: []string{"--service.registry.domain=flag"}, environment: variable, want: "flag"},
		"an empty flag is a flag too":         {files: one, args: []string{"--config.files=config", "--service.registry.domain="}, environment: variable, want: ""},
		"the later file beats the earlier":    {files: two, args: []string{"--config.files=config,secret"}, want: "second"},
		"the order of names is what counts":   {files: two, args: []string{"--config.files=secret", "--config.files=config"}, want: "first"},
		"the first directory that has the file wins": {
			files: map[string]string{"b/config.yml": "service: {registry: {domain: b}}", "a/config.json": `{"service": {"registry": {"domain": "a"}}}`},
			args:  []string{"--config.files=config"}, want: "a",
		},
		"other directories are searched when it has not": {
			files: map[string]string{"b/config.yaml": "service: {registry: {domain: b}}"},
			args:  []string{"--config.files=config"}, want: "b",
		},
		"dotted keys are keys":             {files: map[string]string{"a/config.yml": "service.registry.domain: dotted"}, args: []string{"--config.files=config"}, want: "dotted"},
		"null is the empty value":          {files: map[string]string{"a/config.yml": "service: {registry: {domain: null}}"}, args: []string{"--config.files=config"}, want: ""},
		"an empty file changes nothing":    {files: map[string]string{"a/config.yml": ""}, args: []string{"--config.files=config"}, want: "registry.k8s.io"},
		"keys may be written in any case":  {files: map[string]string{"a/config.yml": "Service: {Registry: {Domain: case}}"}, args: []string{"--config.files=config"}, want: "case"},
		"flags may be written in any case": {args: []string{"--service.Registry.domain=case"}, want: "case"},
	} {
		t.Run(name, func(t *testing.T) {
			fs, _ := setup(t, test.files, test.args...)
			err := flag.Load(fs, environment(test.environment))
			if diff := cmp.Diff(test.want, text(t, fs, domain)); diff != "" || err != nil {
				t.Errorf("err = %v, another value (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestListsMayBeWrittenInAnyForm: a list may be a YAML list, comma-separated text or repeated flags. A later source
// replaces a list and does not append to it.
func TestListsMayBeWrittenInAnyForm(t *testing.T) {
	file := func(noProxy string) map[string]string {
		return map[string]string{"a/config.yml": "service: {workload: {proxy: {noProxy: " + noProxy + "}}}"}
	}
	variable := map[string]string{"SERVICE_WORKLOAD_PROXY_NOPROXY": "c, d"}
	config := "--config.files=config"
	for name, test := range map[string]struct {
		files       map[string]string
		args        []string
		environment map[string]string
		want        []string
	}{
		"a list":                          {files: file("[10.0.0.0/8, .svc]"), args: []string{config}, want: []string{"10.0.0.0/8", ".svc"}},
		"a comma separated text":          {files: file(`"10.0.0.0/8,.svc"`), args: []string{config}, want: []string{"10.0.0.0/8", ".svc"}},
		"with spaces and a comma end":     {files: file(`" 10.0.0.0/8 , .svc, "`), args: []string{config}, want: []string{"10.0.0.0/8", ".svc"}},
		"an empty list":                   {files: file("[]"), args: []string{config}, want: []string{}},
		"an empty text":                   {files: file(`""`), args: []string{config}, want: []string{}},
		"one flag":                        {args: []string{"--service.workload.proxy.noproxy=a,b"}, want: []string{"a", "b"}},
		"two flags":                       {args: []string{"--service.workload.proxy.noproxy=a", "--service.workload.proxy.noproxy=b"}, want: []string{"a", "b"}},
		"the environment replaces a file": {files: file("[a, b]"), args: []string{config}, environment: variable, want: []string{"c", "d"}},
		"a flag is not added to":          {files: file("[a, b]"), args: []string{config, "--service.workload.proxy.noproxy=e"}, environment: variable, want: []string{"e"}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, _ := setup(t, test.files, test.args...)
			loadErr := flag.Load(fs, environment(test.environment))
			got, err := fs.GetStringSlice(flag.WorkloadProxyNoProxy)
			if diff := cmp.Diff(append([]string{}, test.want...), append([]string{}, got...)); diff != "" || err != nil || loadErr != nil {
				t.Errorf("errors %v %v, another list (-want +got):\n%s", loadErr, err, diff)
			}
		})
	}
}

// TestOldSpellings: "tenant" is the older word for "workload" in flags, in files and in the environment.
func TestOldSpellings(t *testing.T) {
	for name, test := range map[string]struct {
		file        string
		args        []string
		environment map[string]string
		key, want   string
	}{
		"file with workload":        {file: "service: {workload: {ssh: {ssoPublicKey: k}}}", key: flag.WorkloadSSHSSOPublicKey, want: "k"},
		"file with tenant":          {file: "service: {tenant: {ssh: {ssoPublicKey: k}}}", key: flag.WorkloadSSHSSOPublicKey, want: "k"},
		"flag with tenant":          {args: []string{"--service.tenant.proxy.http=p"}, key: flag.WorkloadProxyHTTP, want: "p"},
		"flag with installation":    {args: []string{"--service.installation.tenant.kubernetes.api.auth.provider.oidc.clientid=c"}, key: flag.OIDCClientID, want: "c"},
		"file with installation":    {file: "service: {installation: {tenant: {kubernetes: {api: {auth: {provider: {oidc: {clientID: c}}}}}}}}", key: flag.OIDCClientID, want: "c"},
		"environment with workload": {environment: map[string]string{"SERVICE_WORKLOAD_PROXY_HTTP": "p"}, key: flag.WorkloadProxyHTTP, want: "p"},
		"environment with tenant":   {environment: map[string]string{"SERVICE_TENANT_PROXY_HTTP": "p"}, key: flag.WorkloadProxyHTTP, want: "p"},
		"unused but accepted":       {args: []string{"--service.tenant.update.enabled=true", "--service.tenant.ignition.path=/opt/ignition"}, key: flag.WorkloadUpdateEnabled, want: "true"},
		"tenant elsewhere stays":    {args: []string{"--service.registry.domain=tenant.example.org"}, key: flag.RegistryDomain, want: "tenant.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if test.file != "" {
				args = append(args, "--config.files=config")
			}
			fs, _ := setup(t, map[string]string{"a/config.yml": test.file}, args...)
			err := flag.Load(fs, environment(test.environment))
			if diff := cmp.Diff(test.want, text(t, fs, test.key)); diff != "" || err != nil {
				t.Errorf("err = %v, another value (-want +got):\n%s", err, diff)
			}
		})
	}
}
