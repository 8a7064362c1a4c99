package etcd

import "testing"

// TestRestoreOfEverySituation covers up to three masters and everything that can be wanted, committed and done: no data
// is replaced while a machine runs or before the snapshot is known to be intact, no cluster is founded from mixed data,
// and every sequence ends with the wanted snapshot.
func TestRestoreOfEverySituation(t *testing.T) {
	snapshots := []string{"", "a/0", "a/1", "b/0"}
	count := 0
	for _, wanted := range snapshots {
		for _, committed := range snapshots {
			for _, done := range snapshots {
				for n := 1; n <= 3; n++ {
					for bits := range 1 << (2*n + 1) {
						r := Restoration{Wanted: wanted, Committed: committed, Done: done, Checked: bits&1 == 1}
						for m := range n {
							r.Masters = append(r.Masters, RestoredMaster{Running: bits>>(2*m+1)&1 == 1, Placed: bits>>(2*m+2)&1 == 1})
						}
						checkRestore(t, r)
						followRestore(t, r)
						count++
					}
				}
			}
		}
	}
	visited(t, count, 10_752)
}

func checkRestore(t *testing.T, r Restoration) {
	t.Helper()
	running := r.any(func(m RestoredMaster) bool { return m.Running })
	phase := r.Phase()
	switch {
	case running && (phase == Committing || phase == Placing || phase == Founding):
		t.Fatalf("%+v: %s while a machine runs", r, phase)
	case (phase == Placing || phase == Founding) && r.Committed != r.Target():
		t.Fatalf("%+v: data is replaced by another snapshot than the one that was written down", r)
	case phase == Committing && !r.Checked:
		t.Fatalf("%+v: it is not known whether the snapshot is complete", r)
	case phase == Founding && r.any(func(m RestoredMaster) bool { return !m.Placed }):
		t.Fatalf("%+v: a master has other data", r)
	case r.Committed != "" && !r.Halted():
		t.Fatalf("%+v: a machine may begin with a mixture of data", r)
	case r.Committed == "" && (phase == NotRestoring || phase == Checking) && r.Halted():
		t.Fatalf("%+v: machines are stopped without need", r)
	}
}

// end returns the snapshot that a sequence ends with: the wanted one, or the same file of a later generation that was
// restored before; if none is wanted, the committed one.
func end(r Restoration) string {
	switch {
	case r.Wanted == "a/0" && (r.Committed == "a/1" || r.Committed == "" && r.Done == "a/1"):
		return "a/1"
	case r.Wanted != "":
		return r.Wanted
	case r.Committed != "":
		return r.Committed
	}
	return r.Done
}

// followRestore carries out the next step until there is none.
func followRestore(t *testing.T, r Restoration) {
	t.Helper()
	begun := r
	for range 16 {
		switch r.Phase() {
		case NotRestoring:
			if r.Halted() || r.Done != end(begun) {
				t.Fatalf("%+v ends as %+v", begun, r)
			}
			return
		case Checking:
			r.Checked = true
		case Stopping:
			for i := range r.Masters {
				r.Masters[i].Running = false
			}
		case Committing:
			r.Committed = r.Target()
		case Placing:
			for i := range r.Masters {
				r.Masters[i].Placed = true
			}
		case Founding:
			// The machines start, and what is known of one snapshot says nothing about another.
			r.Done, r.Committed, r.Checked = r.Committed, "", false
			for i := range r.Masters {
				r.Masters[i] = RestoredMaster{Running: true}
			}
		}
	}
	t.Fatalf("no end is in sight: %+v", begun)
}
