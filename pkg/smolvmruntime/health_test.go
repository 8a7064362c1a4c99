package smolvmruntime

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// TestEveryHealth goes through all that can be seen.
func TestEveryHealth(t *testing.T) {
	for sentence, test := range map[string]struct {
		o           observation
		health      Health
		causes      string
		accelerator v1alpha1.Accelerator
	}{
		"well":        {observation{}, Health{true, true, true, true, "runtime healthy"}, "runtime healthy", "kvm"},
		"without KVM": {observation{noKVM: "no device"}, Health{false, false, true, true, "KVM unavailable"}, "KVM unavailable (no device)", ""},
		"without KVM, where it may emulate": {
			observation{noKVM: "no device", emulates: true}, Health{true, false, true, true, "runtime healthy; machines are emulated, which is slow"},
			"runtime healthy; machines are emulated, which is slow", "tcg",
		},
		"a silent smolvm": {observation{silence: "it ended"}, Health{false, false, false, true, "smolvm socket unavailable"}, "smolvm socket unavailable (it ended)", ""},
		"a full disk":     {observation{state: "no space"}, Health{false, true, true, false, "state directory unavailable"}, "state directory unavailable (no space)", "kvm"},
		"nothing at all": {
			observation{silence: "a", state: "b", noKVM: "c", emulates: true}, Health{false, false, false, false, "smolvm socket unavailable; state directory unavailable"},
			"smolvm socket unavailable (a); state directory unavailable (b)", "",
		},
		"a full disk without KVM": {
			observation{state: "b", noKVM: "c"}, Health{false, false, true, false, "state directory unavailable; KVM unavailable"}, "state directory unavailable (b); KVM unavailable (c)", "",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := test.o.health(); got != test.health {
				t.Errorf("%+v", got)
			}
			if got := test.o.message(true); got != test.causes {
				t.Errorf("%q", got)
			}
			if got := test.o.accelerator(); got != test.accelerator {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestWhatAnswersOnTheSocket: only smolvm makes a runtime ready.
func TestWhatAnswersOnTheSocket(t *testing.T) {
	answers := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	device := errors.New("no device")
	for sentence, test := range map[string]struct {
		handler   http.HandlerFunc
		emulation bool
		device    error
		want      string
	}{
		"smolvm with KVM":                         {answers(`{"status":"ok","backend":"qemu","accelerator":"kvm"}`), false, device, "runtime healthy"},
		"smolvm without KVM":                      {answers(`{"status":"ok","accelerator":"tcg","accelerator_reason":"the canary died"}`), false, nil, "KVM unavailable (the canary died)"},
		"smolvm without KVM that may emulate":     {answers(`{"status":"ok","accelerator":"tcg"}`), true, nil, "runtime healthy; machines are emulated, which is slow"},
		"a real smolvm, with the device":          {answers(`{"status":"ok","version":"1.9.3"}`), false, nil, "runtime healthy"},
		"a real smolvm, without it":               {answers(`{"status":"ok","version":"1.9.3"}`), true, device, "KVM unavailable (no device)"},
		"an accelerator that is not known":        {answers(`{"status":"ok","accelerator":"magic"}`), true, device, "KVM unavailable (no device)"},
		"an unhealthy smolvm":                     {answers(`{"status":"stalled"}`), false, nil, `smolvm socket unavailable (smolvm says that it is "stalled")`},
		"another program with JSON":               {answers(`{}`), false, nil, `smolvm socket unavailable (smolvm says that it is "")`},
		"another program":                         {answers(`hello`), false, nil, "smolvm socket unavailable (decoding the answer"},
		"one that refuses":                        {http.NotFound, false, nil, "smolvm socket unavailable (smolvm answered 404"},
		"a socket that a dead process left there": {nil, false, nil, "smolvm socket unavailable (calling GET /health"},
	} {
		t.Run(sentence, func(t *testing.T) {
			socket := socketFor(t)
			var config net.ListenConfig
			listener, err := config.Listen(t.Context(), "unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			if test.handler == nil {
				listener.(*net.UnixListener).SetUnlinkOnClose(false)
				listener.Close()
			} else {
				s := &http.Server{Handler: test.handler, ReadHeaderTimeout: time.Minute}
				go func() { _ = s.Serve(listener) }()
				t.Cleanup(func() { s.Close() })
			}
			p := &prober{smolvm: clientOf(t, socket), state: t.TempDir(), emulation: test.emulation, device: func() error { return test.device }, reason: func() string { return "" }}
			o := p.observe(t.Context())
			if got := o.message(true); !strings.HasPrefix(got, test.want) {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestCauses(t *testing.T) {
	for sentence, test := range map[string]struct {
		known string
		err   error
		want  string
	}{
		"what the supervisor knows": {"smolvm ended with exit code 1", errors.New("no socket"), "smolvm ended with exit code 1"},
		"what the socket says":      {"", errors.New("no socket"), "no socket"},
		"a silence":                 {"", context.DeadlineExceeded, "smolvm does not answer"},
		"a long story":              {strings.Repeat("é", maxCause), errors.New("x"), strings.Repeat("é", maxCause/2)},
	} {
		if got := cause(test.known, test.err); got != test.want {
			t.Errorf("%s: %q", sentence, got)
		}
	}
}

func TestDirectoriesThatCannotBeWrittenTo(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	err := tryWriting(missing)
	if err == nil || err.Error() != "writing to "+missing+": no such file or directory" {
		t.Errorf("the error is %v", err)
	}
	directory := t.TempDir()
	if err := tryWriting(directory); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	// The agent runs without its directory, and with a certificate.
	i, err := newIdentity(&Settings{Node: "n", State: "/proc/no"}, quiet, time.Now())
	if err != nil || i.Published() == "" {
		t.Errorf("there is no certificate: %v", err)
	}
}

func TestWhatFilesOccupy(t *testing.T) {
	directory := t.TempDir()
	sparse, err := os.Create(filepath.Join(directory, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	empty, err := occupied(directory)
	if err != nil || empty > 1<<20 {
		t.Fatalf("a sparse file occupies %d bytes: %v", empty, err)
	}
	outside := filepath.Join(t.TempDir(), "large")
	for _, path := range []string{outside, filepath.Join(directory, "disk")} {
		if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(directory, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(directory, "disk"), filepath.Join(directory, "twice")); err != nil {
		t.Fatal(err)
	}
	got, err := occupied(directory)
	if more := got - empty; err != nil || more < 8<<20 || more > 9<<20 {
		t.Errorf("a disk of 8 MiB with two names, and a link, occupy %d bytes more: %v", more, err)
	}
	if all, err := storage(directory); err != nil || all <= got {
		t.Errorf("the room is %d bytes: %v", all, err)
	}
	if _, err := storage(filepath.Join(directory, "missing")); err == nil {
		t.Error("a directory that is missing has room")
	}
}

func TestAllocatable(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("4000Mi")}}}
	for sentence, test := range map[string]struct {
		settings Settings
		node     *corev1.Node
		want     v1alpha1.Allocatable
	}{
		"what the Node has":                     {Settings{}, node, v1alpha1.Allocatable{CPUs: 4, MemoryMiB: 4000, StorageGiB: 100}},
		"what the container requests":           {Settings{CapacityCPUs: 2, CapacityMemoryMiB: 1000}, node, v1alpha1.Allocatable{CPUs: 2, MemoryMiB: 1000, StorageGiB: 100}},
		"some of both":                          {Settings{CapacityCPUs: 2}, node, v1alpha1.Allocatable{CPUs: 2, MemoryMiB: 4000, StorageGiB: 100}},
		"less storage than there is":            {Settings{CapacityStorageGiB: 50}, node, v1alpha1.Allocatable{CPUs: 4, MemoryMiB: 4000, StorageGiB: 50}},
		"no more storage than there is":         {Settings{CapacityStorageGiB: 500}, node, v1alpha1.Allocatable{CPUs: 4, MemoryMiB: 4000, StorageGiB: 100}},
		"without a Node, what the settings say": {Settings{CapacityCPUs: 2}, nil, v1alpha1.Allocatable{CPUs: 2, StorageGiB: 100}},
	} {
		if got := allocatable(&test.settings, test.node, 100*gibibyte+gibibyte/2); got != test.want {
			t.Errorf("%s: %+v", sentence, got)
		}
	}
}

func TestFeatures(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = strings.Repeat("f", i)
	}
	if got := featuresOf(many); len(got) != maxFeatures || slices.Contains(got, "") {
		t.Errorf("%d features", len(got))
	}
	if got := featuresOf([]string{"b", "a", "b"}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	if got := backendOf(""); got != "smolvm" {
		t.Errorf("the backend is %s", got)
	}
}

// TestASmolvmThatHangsIsReplaced, and one that has ended is the supervisor's.
func TestASmolvmThatHangsIsReplaced(t *testing.T) {
	start := time.Now()
	for sentence, test := range map[string]struct {
		hang   time.Duration
		child  int
		silent bool
		want   bool
	}{
		"it is silent":          {time.Minute, 7, true, true},
		"it answers":            {time.Minute, 7, false, false},
		"it has ended":          {time.Minute, 0, true, false},
		"it may be silent":      {0, 7, true, false},
		"it is another's child": {time.Minute, 0, false, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newSupervisor([]string{"smolvm"}, io.Discard, quiet)
			s.set(test.child, "")
			w := &watcher{agent: &Agent{settings: &Settings{HangTimeout: test.hang, Command: s.command}, supervisor: s}, answered: start}
			for _, after := range []time.Duration{0, 30 * time.Second, 59 * time.Second} {
				w.noteSilence(test.silent, start.Add(after))
				if len(s.hung) > 0 {
					t.Fatalf("it is replaced after %s", after)
				}
			}
			w.noteSilence(test.silent, start.Add(time.Minute))
			if got := len(s.hung) > 0; got != test.want {
				t.Errorf("it is replaced: %v", got)
			}
		})
	}
}
