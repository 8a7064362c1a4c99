// Package budget_test counts the operator's requests to the API server.
package budget_test

import (
	"os"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// theLab is the management cluster of all tests here. It is an API server alone, so only the operator acts.
var theLab *lab.Lab

func TestMain(m *testing.M) { os.Exit(lab.Main(m, &theLab, 4, managementcluster.Options{})) }
