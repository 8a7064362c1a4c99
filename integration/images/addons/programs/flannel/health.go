package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// serveHealth answers /healthz until ctx ends.
func serveHealth(ctx context.Context, background *sync.WaitGroup, address string, port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listening for /healthz: %w; choose another --healthz-port", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("flanneld is running")) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	background.Go(func() { _ = server.Serve(listener) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return nil
}
