// Package crash_test proves that a crash at any point leaves nothing behind and that nothing is done twice.
package crash_test

import (
	"os"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// theLab is the management cluster of all tests here. It has no hosts, so node pods stay pending.
var theLab *lab.Lab

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, &theLab, 16, managementcluster.Options{ControllerManager: true}))
}
