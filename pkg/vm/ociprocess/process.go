// Package ociprocess describes what an image runs. It imports nothing, because the agent in the guest is small.
package ociprocess

import (
	"slices"
	"strings"
)

// Process is what a machine runs, as the OCI image specification ("Image Configuration") has it.
type Process struct {
	// Entrypoint and Command together are the program and its arguments.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Command    []string `json:"command,omitempty"`
	// Environment has NAME=value each, a name once.
	Environment []string `json:"environment,omitempty"`
	// Directory is the working directory; empty for /.
	Directory string `json:"directory,omitempty"`
	// User is a name or number of the image's own users, or both of user and group with a colon; empty for root.
	User string `json:"user,omitempty"`
	// StopSignal is the signal that ends it; empty for SIGTERM.
	StopSignal string `json:"stopSignal,omitempty"`
}

// Override returns the process with what is set in another one. An entrypoint replaces the command, too, as in Docker and
// Kubernetes.
func (p Process) Override(by Process) Process {
	if by.Entrypoint != nil {
		p.Entrypoint, p.Command = by.Entrypoint, nil
	}
	if by.Command != nil {
		p.Command = by.Command
	}
	p.Environment = Merge(p.Environment, by.Environment)
	if by.Directory != "" {
		p.Directory = by.Directory
	}
	if by.User != "" {
		p.User = by.User
	}
	return p
}

// Arguments returns the program and its arguments; empty if there is nothing to run.
func (p Process) Arguments() []string { return slices.Concat(p.Entrypoint, p.Command) }

// Merge returns variables with others over them, in the order in which their names were first there.
func Merge(under, over []string) []string {
	var all []string
	at := map[string]int{}
	for _, variable := range slices.Concat(under, over) {
		name, _, _ := strings.Cut(variable, "=")
		if i, there := at[name]; there {
			all[i] = variable
			continue
		}
		at[name] = len(all)
		all = append(all, variable)
	}
	return all
}
