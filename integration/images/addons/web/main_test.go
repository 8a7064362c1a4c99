package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServerTellsItsNameToTheClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"serve", "--address", "127.0.0.1", "--port", "0"}, writer) }()
	line := make([]byte, 200)
	n, err := reader.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	port := regexp.MustCompile(`:(\d+)\n$`).FindSubmatch(line[:n])
	if port == nil {
		t.Fatalf("%q names no port", line[:n])
	}

	var answer bytes.Buffer
	if err := run(t.Context(), []string{"get", "http://127.0.0.1:" + string(port[1]) + "/any/path"}, &answer); err != nil {
		t.Fatal(err)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(name+"\n", answer.String()); diff != "" {
		t.Error(diff)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("a server that is asked to end: %v", err)
	}
}

func TestClientFailsWithoutAGoodAnswer(t *testing.T) {
	hangs := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			<-hangs
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	defer close(hangs)

	tests := map[string][]string{
		"an unhealthy server": {"get", server.URL},
		"a server that hangs": {"get", "--timeout", "50ms", server.URL + "/hangs"},
		"nothing listens":     {"get", "http://127.0.0.1:1/"},
		"no URL":              {"get"},
		"no such command":     {"put", server.URL},
		"a port that is none": {"serve", "--port", "65536"},
	}
	for sentence, args := range tests {
		t.Run(sentence, func(t *testing.T) {
			err := run(t.Context(), args, io.Discard)
			if err == nil {
				t.Error("there is no error")
			}
			if wantTimeout := sentence == "a server that hangs"; errors.Is(err, context.DeadlineExceeded) != wantTimeout {
				t.Errorf("got %v, is it a timeout: want %v", err, wantTimeout)
			}
		})
	}
}
