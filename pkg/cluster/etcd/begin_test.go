package etcd

import (
	"slices"
	"testing"
)

func TestBegin(t *testing.T) {
	a, b, c := masterNamed(0), masterNamed(1), masterNamed(2)
	started := func(w Master) Member {
		return Member{ID: 1, Name: w.Name, PeerURL: w.PeerURL, Started: true, Healthy: true}
	}
	added := func(w Master) Member { return Member{ID: 2, PeerURL: w.PeerURL, Learner: true} }
	founding := Member{ID: 3, Name: b.Name, PeerURL: b.PeerURL}
	for name, test := range map[string]struct {
		who      Master
		founders []Master
		seen     bool
		founded  bool
		members  []Member
		want     Beginning
		with     []Master
	}{
		"a founder before anything runs":                 {who: a, founders: []Master{a, b}, want: Found, with: []Master{a, b}},
		"a founder the others wait for":                  {who: b, founders: []Master{a, b}, members: []Member{started(a), founding}, want: Found, with: []Master{a, b}},
		"a founder that runs":                            {who: a, founders: []Master{a, b}, members: []Member{started(a), started(b)}, want: Return},
		"a founder that ran, and no member answers":      {who: a, founders: []Master{a, b}, seen: true, founded: true, want: Return},
		"a founder that did not, and no member answers":  {who: a, founders: []Master{a, b}, founded: true, want: Later},
		"one that ran and was taken out":                 {who: c, founders: []Master{a}, seen: true, founded: true, members: []Member{started(a)}, want: Later},
		"one that ran, was taken out and added":          {who: c, founders: []Master{a}, seen: true, founded: true, members: []Member{started(a), added(c)}, want: Join, with: []Master{a, c}},
		"one that was added, with a founder not there":   {who: c, founders: []Master{a, b}, members: []Member{started(a), founding, added(c)}, want: Join, with: []Master{a, b, c}},
		"a founder that was taken out":                   {who: b, founders: []Master{a, b}, members: []Member{started(a)}, want: Later},
		"a founder that was taken out and added":         {who: b, founders: []Master{a, b}, members: []Member{started(a), added(b)}, want: Join, with: []Master{a, b}},
		"one that comes later, and no member answers":    {who: c, founders: []Master{a, b}, want: Later},
		"one that comes later and is not added yet":      {who: c, founders: []Master{a}, members: []Member{started(a)}, want: Later},
		"one that was added":                             {who: c, founders: []Master{a}, members: []Member{started(a), added(c)}, want: Join, with: []Master{a, c}},
		"one that was added, and ran":                    {who: c, founders: []Master{a}, members: []Member{started(a), started(c)}, want: Return},
		"one that was added beside another that did not": {who: c, founders: []Master{a}, members: []Member{started(a), added(b), added(c)}, want: Later},
	} {
		t.Run(name, func(t *testing.T) {
			s := State{Members: test.members}
			got, with := Begin(test.who, test.founders, test.seen, test.founded, s)
			if got != test.want || !slices.Equal(with, test.with) {
				t.Errorf("got %s with %v, want %s with %v", got, with, test.want, test.with)
			}
		})
	}
}
