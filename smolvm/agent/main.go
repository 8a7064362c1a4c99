// Command agent is process 1 of a microVM, in the initial file system that integration/images/guestimage builds of it.
package main

import (
	"fmt"
	"os"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/guest"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "agent: this is process 1 of a microVM, and runs nowhere else")
		os.Exit(2)
	}
	guest.Run()
}
