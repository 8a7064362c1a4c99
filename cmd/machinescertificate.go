package cmd

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/kvm-operator/kvm-operator/flag"
	"github.com/kvm-operator/kvm-operator/service/machines"
)

// machinesCertificate reads the certificate and the key that metrics are served with. It is nil for metrics by plain HTTP,
// or none.
func machinesCertificate(r reader) (*certwatcher.CertWatcher, error) {
	directory, address := r.text(flag.MachinesMetricsCerts), r.text(flag.MachinesMetricsAddress)
	if directory == "" || address == machines.NotServed {
		return nil, nil
	}
	if address == r.text(flag.MachinesProbeAddress) {
		return nil, fmt.Errorf("%s is set, so %q is served by TLS alone, but the kubelet probes by plain HTTP: %s and %s have to be different",
			bothNames(flag.MachinesMetricsCerts), address, bothNames(flag.MachinesMetricsAddress), bothNames(flag.MachinesProbeAddress))
	}
	certificate, key := filepath.Join(directory, r.text(flag.MachinesMetricsCert)), filepath.Join(directory, r.text(flag.MachinesMetricsKey))
	watcher, err := certwatcher.New(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s is set, so %s has to be a certificate in PEM and %s its key; leave it empty for metrics by plain HTTP: %w",
			bothNames(flag.MachinesMetricsCerts), certificate, key, err)
	}
	return watcher, nil
}

// bothNames returns how a setting may be given.
func bothNames(setting string) string {
	return fmt.Sprintf("%s (--%s)", flag.MachinesVariable(setting), setting)
}
