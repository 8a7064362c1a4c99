package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/agentwire"
	"github.com/kvm-operator/kvm-operator/pkg/vm/ociprocess"
)

// TestOutputOfAnEndedProcessIsComplete: what is in the pipe is read though another process holds it open, and no more is
// waited for.
func TestOutputOfAnEndedProcessIsComplete(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		held bool
		want error
	}{
		"nothing":                          {"", false, nil},
		"a full pipe":                      {strings.Repeat("x", pipeSize), false, nil},
		"nothing, and it is held open":     {"", true, errLeft},
		"a full pipe, and it is held open": {strings.Repeat("x", pipeSize), true, errLeft},
	} {
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(to, test.text); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		close(ended)
		if !test.held {
			to.Close()
		}
		var got bytes.Buffer
		if err := relay(from, &got, ended); !errors.Is(err, test.want) || got.String() != test.text {
			t.Errorf("%s: %d bytes of %d, %v", name, got.Len(), len(test.text), err)
		}
		from.Close()
		to.Close()
	}
}

func TestCommandsHaveWhatTheImageSays(t *testing.T) {
	image := base(ociprocess.Process{Environment: []string{"A=1", "PATH=/x"}, Directory: "/srv", User: "web"})
	x := &executor{base: image}
	for name, test := range map[string]struct {
		exec agentwire.Exec
		want command
	}{
		"all of it": {agentwire.Exec{}, command{environment: []string{"A=1", "PATH=/x"}, directory: "/srv", user: "web", makeDirectory: true}},
		"but what it sets itself": {
			agentwire.Exec{Env: []string{"A=2", "B=3"}, Directory: "/", User: "root"},
			command{environment: []string{"A=2", "PATH=/x", "B=3"}, directory: "/", user: "root"},
		},
	} {
		got := x.command(test.exec, &pipes{})
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(command{}), cmp.Comparer(func(a, b *os.File) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"A=1", "PATH=" + defaultPath, "HOME=/"}, complete([]string{"A=1"}, "")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"PATH=/x", "HOME=/y"}, complete([]string{"PATH=/x", "HOME=/y"}, "/z")); diff != "" {
		t.Error(diff)
	}
}

func TestFilesOfEtcSayWhatTheMachineIs(t *testing.T) {
	config, err := agentwire.ParseConfig([]byte(`{"name":"small","network":{"address":"100.96.0.2/30","gateway":"100.96.0.1","dns":"100.96.0.53"}}`))
	if err != nil {
		t.Fatal(err)
	}
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	want := map[string]string{"hosts": local + "100.96.0.2\tsmall\n", "hostname": "small\n", "resolv.conf": "nameserver 100.96.0.53\n"}
	if diff := cmp.Diff(want, contents(config)); diff != "" {
		t.Error(diff)
	}
	config.Network = nil
	want = map[string]string{"hosts": local + "127.0.1.1\tsmall\n", "hostname": "small\n", "resolv.conf": ""}
	if diff := cmp.Diff(want, contents(config)); diff != "" {
		t.Error(diff)
	}
}

func TestConsoleSaysOneLineEach(t *testing.T) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	(&console{file: to}).say("there is no %s", "a\nb")
	to.Close()
	if text, err := io.ReadAll(from); err != nil || string(text) != "smolvm: there is no a b\n" {
		t.Errorf("it says %q, %v", text, err)
	}
}
