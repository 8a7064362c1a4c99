package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

func TestStopRecordedEndsTheRecordedProcess(t *testing.T) {
	dir := t.TempDir()
	p, err := process.Start(sleeper(dir))
	if err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(dir, "sleeper.pid")
	if pid, err := process.Recorded(record); err != nil || pid != p.PID() {
		t.Errorf("recorded is process %d (%v), want %d", pid, err, p.PID())
	}
	for range 2 { // nothing to stop is not an error
		if err := process.StopRecorded(record, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Error("the recorded process still runs")
	}
}

func TestStopRecordedSparesAnotherProcessOfTheSameID(t *testing.T) {
	dir := t.TempDir()
	p, err := process.Start(sleeper(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, p)
	record := filepath.Join(dir, "sleeper.pid")
	content, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(content), " ")
	if err := os.WriteFile(record, []byte(pid+" 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := process.StopRecorded(record, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
		t.Error("a process was stopped that only has the id of the recorded one")
	default:
	}
}

func TestRecordedRefusesWhatIsNoRecord(t *testing.T) {
	for _, content := range []string{"", "one 2", "-1 2", "1 2", "5"} {
		record := filepath.Join(t.TempDir(), "record")
		if err := os.WriteFile(record, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if pid, err := process.Recorded(record); err == nil {
			t.Errorf("%q was taken for a record of process %d", content, pid)
		}
	}
}
