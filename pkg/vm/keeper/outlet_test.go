package keeper

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestOutletPassesEverythingOn(t *testing.T) {
	var got bytes.Buffer
	o := NewOutlet(&got)
	var want strings.Builder
	for i := range 1000 {
		text := fmt.Sprintf("line %d\n", i)
		want.WriteString(text)
		buffer := []byte(text)
		if _, err := o.Write(buffer); err != nil {
			t.Fatal(err)
		}
		// What was written belongs to the writer again.
		clear(buffer)
	}
	if err := o.Close(); err != nil || got.String() != want.String() {
		t.Errorf("%v, got %d bytes of %d", err, got.Len(), want.Len())
	}
}

// TestOutletNeverWaits writes more than a pipe holds while nothing reads, and reads it then.
func TestOutletNeverWaits(t *testing.T) {
	reader, writer := io.Pipe()
	o := NewOutlet(writer)
	begin := time.Now()
	for range 200000 {
		if n, err := o.Write([]byte("0123456789")); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("writing took %s", took)
	}
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(reader)
		text <- string(all)
	}()
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		o.mu.Lock()
		left = len(o.kept)
		o.mu.Unlock()
	}
	if _, err := o.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if got := <-text; !strings.Contains(got, "bytes were dropped here") || !strings.HasSuffix(got, "the end") {
		t.Errorf("got %d bytes that end with %q", len(got), got[max(0, len(got)-200):])
	}
}

func TestUnreadOutletCloses(t *testing.T) {
	_, writer := io.Pipe()
	o := NewOutlet(writer)
	if _, err := o.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := o.Close(); err == nil || time.Since(begin) > 10*time.Second {
		t.Errorf("closing took %s and said %v", time.Since(begin), err)
	}
	if n, err := o.Write([]byte("x")); n != 1 || err != nil {
		t.Errorf("writing to what is closed: %d, %v", n, err)
	}
}
