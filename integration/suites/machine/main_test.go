// Package machine tests the runner with real, emulated guests.
package machine_test

import (
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/vm"
)

// The timeouts are for a machine whose cores are shared with others. They end tests that hang, not slow ones.
const (
	tinyBoots  = 2 * time.Minute
	goesDown   = time.Minute
	fullBoots  = 8 * time.Minute
	runnerEnds = 30 * time.Second
)

func TestMain(m *testing.M) { vm.Main(m) }
