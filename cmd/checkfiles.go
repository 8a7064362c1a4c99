package cmd

import (
	"os"

	"github.com/kvm-operator/kvm-operator/flag"
)

// fileChecks holds the checks of settings that name files on the operator's machine. Rendering does not need them.
var fileChecks = map[string]check{
	flag.ServerTLSCrtFile:         with(flag.ServerTLSKeyFile),
	flag.ServerTLSKeyFile:         with(flag.ServerTLSCrtFile),
	flag.KubernetesKubeconfig:     kubeconfig,
	flag.KubernetesKubeconfigPath: readable,
	flag.KubernetesTLSCAFile:      readable,
	flag.KubernetesTLSCrtFile:     with(flag.KubernetesTLSKeyFile),
	flag.KubernetesTLSKeyFile:     with(flag.KubernetesTLSCrtFile),
	flag.SmolVMCAFile:             smolVMFile(readable),
	flag.SmolVMTokenFile:          smolVMFile(smolVMToken),
	flag.VaultCAFile:              readable,
	flag.VaultTokenFile:           readable,
	flag.VaultKubernetesTokenFile: vaultToken,
}

func readable(r reader, name string) string {
	path := r.text(name)
	if path == "" {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return "has to name a file that can be read: " + err.Error()
	}
	_ = f.Close() // it was only opened to see whether it can be
	return ""
}

// with checks a file that is only useful together with another one.
func with(other string) check {
	return func(r reader, name string) string {
		if r.text(name) == "" && r.text(other) != "" {
			return "has to be given together with " + other
		}
		return readable(r, name)
	}
}

// smolVMFile checks a file that is only read by the controller of SmolVMs.
func smolVMFile(ok check) check {
	return func(r reader, name string) string {
		if !r.runs(flag.ControllerSmolVM) {
			return ""
		}
		return ok(r, name)
	}
}

// smolVMToken checks the file with the token for runtimes, without which none answers.
func smolVMToken(r reader, name string) string {
	if r.text(name) == "" {
		return "has to name the file with the token for runtimes of SmolVMs"
	}
	return readable(r, name)
}

// vaultToken checks the token file, which is only read when the operator logs in to Vault with its service account.
func vaultToken(r reader, name string) string {
	if r.text(flag.VaultAddress) == "" || r.text(flag.VaultTokenFile) != "" {
		return ""
	}
	if r.text(name) == "" {
		return "has to name the file with the token of the service account"
	}
	return readable(r, name)
}
