// Command pause is the process of a pod's sandbox. It holds the pod's namespaces, reaps orphaned processes if the pod
// shares its process namespace, and ends on request.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap reaps every child that has ended because one signal may represent many.
func reap() {
	for {
		if child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); child <= 0 || err != nil {
			return
		}
	}
}
