package egress

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func TestEventsAsJSON(t *testing.T) {
	now := time.Unix(1_700_000_000, 999)
	events := Events{Now: func() time.Time { return now }}
	if text, err := json.Marshal(&events); err != nil || string(text) != `{"events":[]}` {
		t.Errorf("no events are %s (%v)", text, err)
	}
	events.Refused("tcp", at("169.254.169.254:80"), "link-local address")
	events.Refused("udp", at("10.0.0.1:53"), "private address")
	now = now.Add(time.Minute)
	events.Refused("tcp", at("169.254.169.254:80"), "link-local address")
	want := `{"events":[` +
		`{"timestamp":1700000000,"operation":"send","dest":"10.0.0.1:53","reason":"private address","count":1},` +
		`{"timestamp":1700000060,"operation":"connect","dest":"169.254.169.254:80","reason":"link-local address","count":2}]}`
	if text, err := json.Marshal(&events); err != nil || string(text) != want {
		t.Errorf("events are %s (%v)", text, err)
	}
	if last := events.Last(1); len(last) != 1 || last[0].Count != 2 {
		t.Errorf("the last one is %+v", last)
	}
	if last := events.Last(0); len(last) != 0 {
		t.Errorf("none are %+v", last)
	}
}

// TestEventsAreBounded: a machine that scans everything with every reason makes nothing grow.
func TestEventsAreBounded(t *testing.T) {
	var events Events
	const scanned = 10 * maxEvents
	for i := range scanned {
		events.Refused("tcp", netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i+1)), fmt.Sprintf("reason %d", i))
	}
	last := events.Last(-1)
	if len(last) != maxEvents || len(events.known) != maxEvents || last[maxEvents-1].Dest != fmt.Sprintf("10.0.0.1:%d", scanned) {
		t.Errorf("%d events are remembered and %d known", len(last), len(events.known))
	}
}

func TestEventsAtTheSameTime(t *testing.T) {
	var events Events
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for j := range 500 {
				events.Refused("udp", netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(j%maxEvents+1)), "private")
				if j%50 > 0 {
					continue
				}
				if _, err := json.Marshal(&events); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	counted := uint64(0)
	for _, event := range events.Last(-1) {
		counted += event.Count
	}
	if counted != 8*500 {
		t.Errorf("counted are %d", counted)
	}
}
