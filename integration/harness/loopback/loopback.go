// Package loopback has what tests need that talk to a server on this machine.
package loopback

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// FreeAddress returns an address of the loopback interface, as host:port, at which nothing listens. Another process may
// take it before it is used.
func FreeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Get returns the body of an answer, with an error for another status than 200.
func Get(url string) (body string, err error) {
	response, err := http.Get(url) //nolint:gosec // the URL is a test's
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, response.Status, text)
	}
	return string(text), err
}
