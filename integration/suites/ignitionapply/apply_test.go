package ignitionapply_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/suites/ignitionapply"
)

func ignition(t *testing.T) string {
	t.Helper()
	binary, err := filepath.Abs("../../../.tools/ignition")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("the Ignition binary is missing: %v\nrun `make tools` in the repository root", err)
	}
	return binary
}

func TestApplyWritesWhatTheConfigSays(t *testing.T) {
	root := t.TempDir()
	config := `{
		"ignition": {"version": "3.4.0"},
		"storage": {"files": [{
			"path": "/etc/greeting", "mode": 416, "contents": {"source": "data:,hello%20node%0A"}
		}]},
		"systemd": {"units": [{"name": "greeter.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n"}]}
	}`
	if err := ignitionapply.Apply(t.Context(), ignition(t), []byte(config), root); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"etc/greeting":                                 "hello node\n",
		"etc/systemd/system/greeter.service":           "[Service]\nExecStart=/bin/true\n",
		"etc/systemd/system-preset/20-ignition.preset": "enable greeter.service\n",
	} {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Errorf("Ignition wrote no %s: %v", path, err)
		} else if string(got) != want {
			t.Errorf("%s contains %q, want %q", path, got, want)
		}
	}
	info, err := os.Stat(filepath.Join(root, "etc/greeting"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o640 {
		t.Errorf("etc/greeting has mode %v, want 0640", info.Mode().Perm())
	}
}

func TestApplyAuthorizesKeysOfUsers(t *testing.T) {
	root := t.TempDir()
	config := `{
		"ignition": {"version": "3.4.0"},
		"passwd": {"users": [{"name": "ada", "groups": ["sudo", "docker"], "sshAuthorizedKeys": ["ssh-ed25519 AAAA ada"]}]}
	}`
	err := ignitionapply.Apply(t.Context(), ignition(t), []byte(config), root)
	if os.Getuid() != 0 {
		if err == nil {
			t.Fatal("Ignition created a user without the rights of root")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile(filepath.Join(root, "home/ada/.ssh/authorized_keys.d/ignition"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "ssh-ed25519 AAAA ada\n"; string(keys) != want {
		t.Errorf("ada's authorized keys are %q, want %q", keys, want)
	}
}

func TestApplyRefusesWhatIgnitionRefuses(t *testing.T) {
	for name, test := range map[string]struct{ config, complaint string }{
		"a config that is no JSON": {
			config:    `{`,
			complaint: "failed to fetch config",
		},
		"an unknown version": {
			config:    `{"ignition": {"version": "9.0.0"}}`,
			complaint: "unsupported config version",
		},
		"a relative path": {
			config:    `{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "etc/greeting"}]}}`,
			complaint: "path not absolute",
		},
		"a merged config that is no config": {
			config:    `{"ignition": {"version": "3.4.0", "config": {"merge": [{"source": "data:,nonsense"}]}}}`,
			complaint: "failed to fetch config",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := ignitionapply.Apply(t.Context(), ignition(t), []byte(test.config), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), test.complaint) {
				t.Errorf("Apply returned %v, want an error with %q", err, test.complaint)
			}
		})
	}
}
