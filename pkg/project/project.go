// Package project says what this program is.
package project

import (
	"runtime/debug"
)

// Facts of the program.
const (
	Name        = "kvm-operator"
	Description = "Workload clusters whose nodes are virtual machines in pods."
	Source      = "https://github.com/kvm-operator/kvm-operator"
)

// version is set by the linker for releases.
var version = "4.0.0-dev"

// Version is the version of this binary, without a leading "v".
func Version() string { return version }

// Commit is the commit that this binary was built from, or "unknown".
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}
