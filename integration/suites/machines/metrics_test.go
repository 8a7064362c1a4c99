package machines_test

import (
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// TestTheSixMetrics is scenario 19: names, labels and types of the reference page, and numbers that follow what happens.
func TestTheSixMetrics(t *testing.T) {
	p := together(t)
	good := p.machine("good", "{template: small}")
	bad := p.machine("bad", "{template: huge}")
	lost := p.machine("lost", "{template: medium, networks: [{name: eth0, networkName: nowhere}]}")
	p.await(good, runs)
	p.await(bad, failed(v1alpha1.TemplateNotFound))
	p.await(lost, failed(v1alpha1.NetworkConfigurationNotFound))
	p.settles()
	text := p.operator.metrics(t)
	for _, line := range []string{
		`# TYPE kubevirt_operator_machines_total gauge`,
		`kubevirt_operator_machines_total{phase="Running",template="small"} 1`,
		`kubevirt_operator_machines_total{phase="Failed",template="medium"} 1`,
		`kubevirt_operator_machines_total{phase="Failed",template="huge"} 1`,
		`# TYPE kubevirt_operator_reconciliation_duration_seconds histogram`,
		`kubevirt_operator_reconciliation_duration_seconds_bucket{controller="Machine",le="60"} `,
		`# TYPE kubevirt_operator_reconciliation_errors_total counter`,
		`kubevirt_operator_reconciliation_errors_total{controller="Machine",error_type="TemplateNotFound"} 1`,
		`kubevirt_operator_reconciliation_errors_total{controller="Machine",error_type="NetworkConfigurationNotFound"} 1`,
		`kubevirt_operator_reconciliation_errors_total{controller="Machine",error_type="StorageClassNotFound"} 0`,
		`# TYPE kubevirt_operator_virtual_machines_total gauge`,
		`kubevirt_operator_virtual_machines_total{status="Running"} 1`,
		`# TYPE kubevirt_operator_storage_provisioning_duration_seconds histogram`,
		`kubevirt_operator_storage_provisioning_duration_seconds_count{storage_class="standard"} 1`,
		`# TYPE kubevirt_operator_network_configuration_errors_total counter`,
		`kubevirt_operator_network_configuration_errors_total{network_name="nowhere"} 1`,
	} {
		if !contains(text, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	change(p, bad, func(m *v1alpha1.Machine) { m.Spec.Template = "large" })
	p.await(bad, runs)
	if text = p.operator.metrics(t); contains(text, `template="huge"`) || !contains(text, `kubevirt_operator_machines_total{phase="Running",template="large"} 1`) {
		t.Errorf("the metrics are not those of the present Machines:\n%s", text)
	}
}
