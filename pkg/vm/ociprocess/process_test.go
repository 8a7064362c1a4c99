package ociprocess

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOverride(t *testing.T) {
	image := Process{Entrypoint: []string{"/entry"}, Command: []string{"a", "b"}, Environment: []string{"A=1", "B=2"}, Directory: "/srv", User: "web", StopSignal: "SIGQUIT"}
	for text, c := range map[string]struct {
		by, want  Process
		arguments []string
	}{
		"nothing":        {Process{}, image, []string{"/entry", "a", "b"}},
		"a command":      {Process{Command: []string{"c"}}, with(image, func(p *Process) { p.Command = []string{"c"} }), []string{"/entry", "c"}},
		"an entrypoint":  {Process{Entrypoint: []string{"/other"}}, with(image, func(p *Process) { p.Entrypoint, p.Command = []string{"/other"}, nil }), []string{"/other"}},
		"no entrypoint":  {Process{Entrypoint: []string{}, Command: []string{"c"}}, with(image, func(p *Process) { p.Entrypoint, p.Command = []string{}, []string{"c"} }), []string{"c"}},
		"variables":      {Process{Environment: []string{"C=3", "A=4", "C=5"}}, with(image, func(p *Process) { p.Environment = []string{"A=4", "B=2", "C=5"} }), []string{"/entry", "a", "b"}},
		"where and who":  {Process{Directory: "/", User: "0"}, with(image, func(p *Process) { p.Directory, p.User = "/", "0" }), []string{"/entry", "a", "b"}},
		"another signal": {Process{StopSignal: "SIGINT"}, image, []string{"/entry", "a", "b"}},
	} {
		got := image.Override(c.by)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if diff := cmp.Diff(c.arguments, got.Arguments()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func with(p Process, change func(*Process)) Process {
	change(&p)
	return p
}
