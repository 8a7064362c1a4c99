// Package election_test takes the lead from an operator in every way that a process can lose it, and looks at what the API server was sent.
package election_test

import (
	"os"
	"testing"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/cmd/runner"
	"github.com/kvm-operator/kvm-operator/integration/lab"
	"github.com/kvm-operator/kvm-operator/integration/managementcluster"
)

// theLab is the management cluster of all tests here: an API server alone, so that only operators act.
var theLab *lab.Lab

// asOperator is set where this program is an operator: what main does is all that such a process does.
const asOperator = "ELECTION_TEST_OPERATOR"

func TestMain(m *testing.M) {
	if os.Getenv(asOperator) != "" {
		os.Exit(runner.Execute(cmd.New()))
	}
	os.Exit(lab.Main(m, &theLab, 3, managementcluster.Options{Audit: true}))
}
