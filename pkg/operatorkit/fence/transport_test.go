package fence_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// server is an API server over HTTP/2 that counts its requests.
func server(t *testing.T) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	asked := &atomic.Int64{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.ProtoMajor != 2 {
			t.Errorf("the request is one of %s", r.Proto)
		}
		_, _ = io.Copy(w, r.Body)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, asked
}

// send sends a request and returns the response.
func send(t *testing.T, by http.RoundTripper, method, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: by}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestOnlyReadsPassAClosedFence(t *testing.T) {
	s, asked := server(t)
	clock := &now{time.Minute}
	f := fence.New("giantswarm/kvm-operator", time.Second, clock.get)
	by := f.Transport(s.Client().Transport)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		f.Renewed(f.Now())
		if answer, err := send(t, by, method, s.URL); err != nil || answer != "{}" {
			t.Errorf("%s through the open fence: %q, %v", method, answer, err)
		}
		clock.Duration += time.Second
		before := asked.Load()
		if _, err := send(t, by, method, s.URL); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("%s through the closed fence: %v", method, err)
		}
		if asked.Load() != before {
			t.Errorf("%s: the server has got what was refused", method)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		if _, err := send(t, by, method, s.URL); err != nil {
			t.Errorf("%s through the closed fence: %v", method, err)
		}
	}
}

// TestTheFenceIsAskedAgainBeforeARequestIsWritten: the process may be stopped while it connects.
func TestTheFenceIsAskedAgainBeforeARequestIsWritten(t *testing.T) {
	s, asked := server(t)
	clock := &now{time.Minute}
	f := fence.New("giantswarm/kvm-operator", time.Second, clock.get)
	f.Renewed(f.Now())
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		clock.Duration += time.Hour
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	if _, err := send(t, f.Transport(transport), http.MethodPost, s.URL); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("err = %v", err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server has got %d requests", n)
	}
}

func TestOtherErrorsStayWhatTheyAre(t *testing.T) {
	f := fence.New("giantswarm/kvm-operator", time.Second, func() time.Duration { return 0 })
	f.Renewed(1)
	_, err := send(t, f.Transport(&http.Transport{}), http.MethodPost, "http://127.0.0.1:1")
	if err == nil || errors.Is(err, fence.ErrRefused) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("err = %v", err)
	}
}
