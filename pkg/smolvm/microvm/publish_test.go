package microvm

import (
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func TestPortRanges(t *testing.T) {
	for text, c := range map[string]struct {
		ranges       string
		want         string
		in, out      []uint16
		wrong        bool
		errorMessage string
	}{
		"all of smolvm":             {ranges: AllPorts, want: "1-65535", in: []uint16{1, 22, 65535}, out: []uint16{0}},
		"two ranges":                {ranges: "1024-10247,10260-65535", want: "1024-10247,10260-65535", in: []uint16{1024, 10247, 10260, 65535}, out: []uint16{0, 22, 1023, 10248, 10259}},
		"a port alone":              {ranges: "8080", want: "8080", in: []uint16{8080}, out: []uint16{8079, 8081}},
		"a range of one":            {ranges: "8080-8080", want: "8080", in: []uint16{8080}, out: []uint16{8081}},
		"another order, an overlap": {ranges: "90-100,1-95", want: "90-100,1-95", in: []uint16{1, 90, 100}, out: []uint16{101}},
		"nothing":                   {wrong: true, errorMessage: `parsing the ports ""`},
		"a comma at the end":        {ranges: "1-2,", wrong: true, errorMessage: `parsing the ports ""`},
		"port 0":                    {ranges: "0-10", wrong: true, errorMessage: `parsing the ports "0-10"`},
		"only port 0":               {ranges: "0", wrong: true, errorMessage: "neither a port from 1 to 65535"},
		"too large":                 {ranges: "1-65536", wrong: true, errorMessage: `"1-65536"`},
		"far too large":             {ranges: "99999999999999999999", wrong: true, errorMessage: "neither a port"},
		"backwards":                 {ranges: "1-10,20-11", wrong: true, errorMessage: "ends before it begins; write 11-20"},
		"no end":                    {ranges: "1024-", wrong: true, errorMessage: `"1024-"`},
		"no beginning":              {ranges: "-1024", wrong: true, errorMessage: `"-1024"`},
		"three ends":                {ranges: "1-2-3", wrong: true, errorMessage: `"1-2-3"`},
		"spaces":                    {ranges: "1-2, 3-4", wrong: true, errorMessage: `" 3-4"`},
		"signs":                     {ranges: "+1-+2", wrong: true, errorMessage: `"+1-+2"`},
		"a name":                    {ranges: "http", wrong: true, errorMessage: `"http"`},
		"hexadecimal":               {ranges: "0x10", wrong: true, errorMessage: `"0x10"`},
	} {
		t.Run(text, func(t *testing.T) {
			ranges, err := ParsePortRanges(c.ranges)
			if c.wrong {
				if err == nil || !strings.Contains(err.Error(), c.errorMessage) {
					t.Errorf("error %v, want %q", err, c.errorMessage)
				}
				return
			}
			if err != nil || ranges.String() != c.want {
				t.Fatalf("%v, %s, want %s", err, ranges, c.want)
			}
			for _, port := range c.in {
				if !ranges.Contains(port) {
					t.Errorf("%d is not in it", port)
				}
			}
			for _, port := range c.out {
				if ranges.Contains(port) {
					t.Errorf("%d is in it", port)
				}
			}
		})
	}
}

// TestMachinesTakeNoClosedPort: the message names each port that is not published, and what is.
func TestMachinesTakeNoClosedPort(t *testing.T) {
	n := newNode(t)
	n.ports = PortRanges{{First: 1024, Last: 10247}, {First: 10260, Last: 65535}}
	m := n.open()
	for _, port := range []uint16{1, 22, 1023, 10248, 10250, 10259} {
		r := request("a")
		r.Ports = append(r.Ports, api.Port{Host: port, Guest: 80}, api.Port{Host: 1024, Guest: 81})
		_, err := m.Create(t.Context(), r)
		want := "this server publishes only the host ports 1024-10247,10260-65535, and not " + PortRanges{{port, port}}.String()
		if api.CodeOf(err) != api.CodeUnsupported || err.Error() != want {
			t.Errorf("error %v (%s), want %s", err, api.CodeOf(err), want)
		}
		if exists(n.directory("a")) {
			t.Error("something is left")
		}
	}
	r := request("a")
	r.Ports = []api.Port{{Host: 1024, Guest: 80}, {Host: 65535, Guest: 81}}
	_, err := m.Create(t.Context(), r)
	try(t, err)
}

// TestNoMachineStartsWithAClosedPort: a server with fewer ports leaves machines that run alone, and does not start those that do
// not. One with all ports starts them again.
func TestNoMachineStartsWithAClosedPort(t *testing.T) {
	n := newNode(t)
	m := n.open()
	try(t, create(t, m))
	try(t, start(t, m))
	try(t, m.Close())
	n.ports = PortRanges{{First: 20000, Last: 29999}}
	m = n.open()
	try(t, start(t, m))
	if now := state(t, m, "a"); now != api.StateRunning {
		t.Fatalf("a machine that ran is %s", now)
	}
	try(t, stop(t, m))
	err := start(t, m)
	if want := "machine 'a' did not start: this server publishes only the host ports 20000-29999, and not 18080"; api.CodeOf(err) != api.CodeUnsupported || err.Error() != want {
		t.Errorf("error %v (%s), want %s", err, api.CodeOf(err), want)
	}
	left, err := m.Get(t.Context(), "a")
	try(t, err)
	if n.keepers.count() != 0 || left.State != api.StateStopped || !strings.Contains(left.Message, "not 18080") {
		t.Errorf("%d processes, machine %+v", n.keepers.count(), left)
	}
	try(t, m.Close())
	n.ports = allPorts
	try(t, start(t, n.open()))
}

// TestAClosedPortEndsTheRestarts: a machine that ended by itself is not tried repeatedly.
func TestAClosedPortEndsTheRestarts(t *testing.T) {
	n := newNode(t)
	m := n.open()
	r := request("a")
	r.Restart = &api.Restart{Policy: api.RestartAlways}
	_, err := m.Create(t.Context(), r)
	try(t, err)
	try(t, start(t, m))
	try(t, m.Close())
	n.ports = PortRanges{{First: 20000, Last: 29999}}
	m = n.open()
	now := time.Now()
	m.now = func() time.Time { return now }
	n.keepers.vanish(n.directory("a"))
	one := m.machines["a"]
	for range 3 {
		m.supervise(t.Context(), one)
		m.starting.Wait()
		now = now.Add(time.Hour)
	}
	left, err := m.Get(t.Context(), "a")
	try(t, err)
	if kept := one.get(); left.State != api.StateFailed || !strings.Contains(left.Message, "not 18080") || kept.Wanted || !kept.RetryAt.IsZero() {
		t.Errorf("machine %+v, record %+v", left, kept)
	}
	if started := n.keepers.started[n.directory("a")]; started != 1 {
		t.Errorf("it was started %d times", started)
	}
}
