// Command kvm-operator turns KVMConfigs into workload clusters whose nodes are virtual machines in pods.
package main

import (
	"os"

	"github.com/kvm-operator/kvm-operator/cmd"
	"github.com/kvm-operator/kvm-operator/cmd/runner"
)

func main() { os.Exit(runner.Execute(cmd.Called(os.Args[0]))) }
