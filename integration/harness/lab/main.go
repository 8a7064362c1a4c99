package lab

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// Main runs a package's tests with one management cluster for all of them, which it stores in l, and returns the exit
// code. Up to parallel tests run at the same time because they wait for the management cluster more than for a CPU.
func Main(m *testing.M, l **Lab, parallel int, options managementcluster.Options) int {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err) // the flag is the testing package's
	}
	started, err := Start(context.Background(), options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the management cluster:", err)
		return 1
	}
	*l = started
	code := m.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the management cluster:", err)
		return 1
	}
	return code
}
