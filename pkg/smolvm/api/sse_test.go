package api

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func collect(stream []byte, oneByOne bool) ([]Event, error) {
	var events []Event
	keep := func(e Event) error {
		events = append(events, Event{Name: e.Name, Data: append([]byte{}, e.Data...)})
		return nil
	}
	if oneByOne {
		return events, ReadEvents(iotest.OneByteReader(bytes.NewReader(stream)), keep)
	}
	err := ReadEvents(bytes.NewReader(stream), keep)
	return events, err
}

func TestReadEvents(t *testing.T) {
	event := func(name, data string) Event { return Event{Name: name, Data: []byte(data)} }
	for name, test := range map[string]struct {
		stream string
		want   []Event
		fails  bool
	}{
		"an event has a name and data":             {stream: "event: exit\ndata: {}\n\n", want: []Event{event("exit", "{}")}},
		"a message has no name":                    {stream: "data: a\n\n", want: []Event{event("", "a")}},
		"lines of data are joined":                 {stream: "data: a\ndata:b\ndata\n\n", want: []Event{event("", "a\nb\n")}},
		"only the first space is no data":          {stream: "data:  a\n\n", want: []Event{event("", " a")}},
		"comments and unknown fields are skipped":  {stream: ":\n\n: x\nid: 1\nretry: 3\nfoo: bar\ndata: a\n\n", want: []Event{event("", "a")}},
		"an event without data is none":            {stream: "event: exit\n\ndata: a\n\n", want: []Event{event("", "a")}},
		"empty data is data":                       {stream: "data:\n\n", want: []Event{event("", "")}},
		"lines end in CR, LF or both":              {stream: "data: a\r\rdata: b\r\n\r\ndata: c\n\r", want: []Event{event("", "a"), event("", "b"), event("", "c")}},
		"a byte order mark is skipped":             {stream: "\uFEFFdata: a\n\n", want: []Event{event("", "a")}},
		"an event that is cut off is dropped":      {stream: "data: a\n\ndata: b\n", want: []Event{event("", "a")}},
		"exact bytes stand for the data":           {stream: "event: stdout\ndata: ?\nb64: /w==\n\n", want: []Event{event("stdout", "\xff")}},
		"exact bytes that are none end the stream": {stream: "data: ?\nb64: *\n\n", fails: true},
		"an endless line ends the stream":          {stream: "data: " + strings.Repeat("a", maxLine), fails: true},
		"an endless event ends the stream":         {stream: strings.Repeat("data: "+strings.Repeat("a", maxLine/2)+"\n", 9), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect([]byte(test.stream), false)
			if (err != nil) != test.fails {
				t.Errorf("the error is %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the events differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEmptyLinesCountInTheBoundOfAnEvent(t *testing.T) {
	event := partialEvent{lines: 1, data: make([]byte, maxEvent)}
	if err := event.add([]byte("data")); err == nil {
		t.Error("an event has more than it may")
	}
}

func TestReadEventsHandsOverWhatHasCome(t *testing.T) {
	stop := errors.New("stop")
	for name, stream := range map[string]string{"LF": "data: a\n\n", "CR": "data: a\r\r"} {
		t.Run(name, func(t *testing.T) {
			// A reader that is asked for more than has come would wait.
			waiting := iotest.ErrReader(errors.New("the reader would wait"))
			err := ReadEvents(multi(stream, waiting), func(Event) error { return stop })
			if !errors.Is(err, stop) {
				t.Errorf("the event did not come before %v", err)
			}
		})
	}
}

// FuzzReadEvents compares streams that come at once and byte by byte, and checks the bounds.
func FuzzReadEvents(f *testing.F) {
	for _, seed := range []string{"event: exit\ndata: {}\n\n", "data: a\r\ndata\r\r\n\n", "\uFEFFdata:x\n\nb64: YQ==\ndata\n\n", ":\n\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, wholeErr := collect(stream, false)
		slow, slowErr := collect(stream, true)
		if diff := cmp.Diff(whole, slow); diff != "" || (wholeErr == nil) != (slowErr == nil) {
			t.Errorf("byte by byte the stream differs (%v, %v):\n%s", wholeErr, slowErr, diff)
		}
		size := 0
		for _, e := range whole {
			size += len(e.Data)
		}
		if size > len(stream) {
			t.Errorf("%d bytes of stream became %d bytes of data", len(stream), size)
		}
	})
}

// FuzzAppendEvent checks that data becomes the same data again.
func FuzzAppendEvent(f *testing.F) {
	for _, seed := range []string{"", "a\nb\n", "a\rb\r\n", "\xff\x00", "\n"} {
		f.Add("stdout", []byte(seed))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if strings.ContainsAny(name, "\r\n") || strings.HasPrefix(name, " ") || len(data) > 256<<10 {
			t.Skip("the names of events are constants, and parts are short")
		}
		got, err := collect(AppendEvent(nil, Event{Name: name, Data: data}), false)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].Name != name || !bytes.Equal(got[0].Data, data) {
			t.Errorf("%q became %+v", data, got)
		}
	})
}
