package cmd

import "github.com/kvm-operator/kvm-operator/flag"

// fileChecks holds the checks of settings that name files on the operator's machine. Rendering does not need them.
var fileChecks = map[string]check{
	flag.ServerTLSCrtFile:         with(flag.ServerTLSKeyFile),
	flag.ServerTLSKeyFile:         with(flag.ServerTLSCrtFile),
	flag.KubernetesKubeconfig:     kubeconfig,
	flag.KubernetesKubeconfigPath: readable,
	flag.KubernetesTLSCAFile:      readable,
	flag.KubernetesTLSCrtFile:     with(flag.KubernetesTLSKeyFile),
	flag.KubernetesTLSKeyFile:     with(flag.KubernetesTLSCrtFile),
	flag.VaultCAFile:              readable,
	flag.VaultTokenFile:           readable,
	flag.VaultKubernetesTokenFile: vaultToken,
}
