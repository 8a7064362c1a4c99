// Package election_test makes an operator lose the Lease in every way that a process can lose it, and checks the
// requests that the API server receives.
package election_test

import (
	"os"
	"testing"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// theLab is the management cluster of all tests here. It is an API server alone, so only operators act.
var theLab *lab.Lab

// asOperator is set in processes in which this program is an operator: main then only runs the operator.
const asOperator = "ELECTION_TEST_OPERATOR"

func TestMain(m *testing.M) {
	if os.Getenv(asOperator) != "" {
		os.Exit(runner.Execute(cmd.New()))
	}
	os.Exit(lab.Main(m, &theLab, 3, managementcluster.Options{Audit: true}))
}
