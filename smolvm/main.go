// Command smolvm serves smolvm's HTTP API with QEMU on one host, and talks to such a server.
package main

import (
	"os"

	"github.com/kvm-operator/kvm-operator/cmd/smolvm"
)

func main() { os.Exit(smolvm.Execute(smolvm.New())) }
