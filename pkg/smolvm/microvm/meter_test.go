package microvm

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/instance"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/server"
)

// metric returns the value of a metric that the server of machines shows.
func metric(t *testing.T, handler http.Handler, name string) float64 {
	t.Helper()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/metrics", nil))
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(answer.Body.String())
	if found == nil {
		t.Fatalf("no metric %s: %d %s", name, answer.Code, answer.Body)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	try(t, err)
	return value
}

func TestBootsAndPullsAreCounted(t *testing.T) {
	n := newNode(t)
	meters := server.NewMeters()
	n.meter = meters
	m := n.open()
	handler := server.New(server.Options{Machines: m, Meters: meters})
	const boot = 100 * time.Millisecond
	start := func(name string) {
		n.keepers.next = behavior{late: boot}
		_, err := m.Start(t.Context(), name, api.StartRequest{})
		try(t, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		_, err := m.Create(t.Context(), request(name))
		try(t, err)
	}
	for _, step := range []struct {
		what         string
		do           func()
		boots, pulls float64
	}{
		{"nothing was started", func() {}, 0, 0},
		{"a start with a pull", func() { start("a") }, 1, 1},
		{"a start of what runs", func() { start("a") }, 1, 1},
		{"a second start, whose image is in the cache", func() {
			_, err := m.Stop(t.Context(), "a")
			try(t, err)
			start("a")
		}, 2, 1},
		{"another machine whose tag means an image in the cache", func() { start("b") }, 3, 1},
		{"a guest that does not answer, with a pull", func() {
			n.images.digest = "sha256:5678"
			n.keepers.next = behavior{fails: &instance.End{Message: "no answer"}}
			if _, err := m.Start(t.Context(), "c", api.StartRequest{}); err == nil {
				t.Error("it has started")
			}
		}, 3, 2},
	} {
		step.do()
		boots, pulls := metric(t, handler, "smolvm_vm_boot_seconds_count"), metric(t, handler, "smolvm_image_pull_seconds_count")
		if boots != step.boots || pulls != step.pulls {
			t.Errorf("%s: %v boots and %v pulls are counted, want %v and %v", step.what, boots, pulls, step.boots, step.pulls)
		}
	}
	if took := metric(t, handler, "smolvm_vm_boot_seconds_sum"); took < 3*boot.Seconds() {
		t.Errorf("3 boots of %s took %v seconds", boot, took)
	}
	if took := metric(t, handler, "smolvm_image_pull_seconds_sum"); took != 2*pullTime.Seconds() {
		t.Errorf("2 pulls of %s took %v seconds", pullTime, took)
	}
}
