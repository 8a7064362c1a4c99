// Package machine tests the runner with real guests under software emulation.
package machine_test

import (
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/vm"
)

// Time-outs are for a machine whose cores are shared with others: they end what hangs, not what is slow.
const (
	tinyBoots  = 2 * time.Minute
	goesDown   = time.Minute
	fullBoots  = 8 * time.Minute
	runnerEnds = 30 * time.Second
)

func TestMain(m *testing.M) { vm.Main(m) }
