package workload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
)

// server imitates an API server as far as a link uses it.
type server struct {
	*httptest.Server
	// ready is the status of /readyz, and asked how often it was requested.
	ready, asked atomic.Int64
}

func newServer(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.ready.Store(http.StatusOK)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			s.asked.Add(1)
			w.WriteHeader(int(s.ready.Load()))
			return
		}
		answer(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// link returns a link to the server.
func (s *server) link(t *testing.T) *link {
	t.Helper()
	authorities := x509.NewCertPool()
	authorities.AddCert(s.Certificate())
	return linkTo(t, s.Listener.Addr().String(), &tls.Config{
		RootCAs: authorities, ServerName: "example.com", NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	})
}

func linkTo(t *testing.T, address string, config *tls.Config) *link {
	t.Helper()
	l := newLink(&addresses{list: []string{address}}, config, scheme.Scheme, newAllowance(), newIntake())
	t.Cleanup(l.close)
	return l
}

// send sends a request and reads the response to its end.
func send(ctx context.Context, t *testing.T, l *link, method, path string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+l.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := l.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

const watchPath = "/api/v1/nodes?watch=true"

func TestRequestsTellOfTheServer(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, c := range map[string]struct {
		answer       http.HandlerFunc
		method, path string
		want         Reason
	}{
		"a watch that ends in good order": {answer: status(200), path: watchPath},
		"a watch that is cut off": {path: watchPath, want: Other, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}},
		"a watch that is not allowed":              {answer: status(403), path: watchPath, want: Unauthorized},
		"a watch that an overloaded server delays": {answer: status(429), path: watchPath, want: NotReady},
		"a watch that fails":                       {answer: status(503), path: watchPath, want: NotReady},
		"a watch whose beginning has expired":      {answer: status(410), path: watchPath},
		"a list by an unknown user":                {answer: status(401), path: "/api/v1/nodes", want: Unauthorized},
		"an object that does not exist":            {answer: status(404), path: "/api/v1/nodes/x"},
		"an admission plugin refuses a write":      {answer: status(403), method: http.MethodPost, path: "/api/v1/nodes"},
		"an admission webhook fails":               {answer: status(500), method: http.MethodPost, path: "/api/v1/nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newServer(t, c.answer).link(t)
			_ = send(t.Context(), t, l, c.method, c.path) // only what the link records matters
			open, failure := l.tally()
			if open != 0 {
				t.Errorf("%d watches are open at the end", open)
			}
			var got Reason
			if failure != nil {
				got = classify(failure)
			}
			if got != c.want {
				t.Errorf("the failure %v means %q, want %q", failure, got, c.want)
			}
			if _, again := l.tally(); again != nil {
				t.Errorf("the failure is reported twice: %v", again)
			}
		})
	}
}

// TestReflectorsDoNotSleepOverARefusedConnection: after a refused connection and a 429, reflectors sleep without
// checking their context (client-go, tools/cache/reflector.go: watchList), and the session could not end.
func TestReflectorsDoNotSleepOverARefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // nothing should listen there
	l := linkTo(t, address, &tls.Config{ServerName: "example.com", MinVersion: tls.VersionTLS12})
	err = send(t.Context(), t, l, http.MethodGet, watchPath)
	if err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the watch gets the error %v, which shows that the connection was refused", err)
	}
	if _, failure := l.tally(); failure == nil || classify(failure) != Refused {
		t.Errorf("the link has noted %v", failure)
	}
	overloaded := newServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }).link(t)
	if err := send(t.Context(), t, overloaded, http.MethodGet, watchPath); err == nil {
		t.Error("the watch gets the answer 429")
	}
}

func TestLostInterestIsNoFailureAndLostPatienceIs(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		bound func(context.Context) (context.Context, context.CancelFunc)
		want  bool
	}{
		"cancelled": {bound: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		}},
		"no answer in time": {want: true, bound: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 20*time.Millisecond)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newServer(t, hang).link(t)
			ctx, cancel := c.bound(t.Context())
			defer cancel()
			if err := send(ctx, t, l, http.MethodGet, "/api/v1/nodes/x"); err == nil {
				t.Fatal("the request was answered")
			}
			if _, failure := l.tally(); (failure != nil) != c.want {
				t.Errorf("the link has noted %v", failure)
			}
		})
	}
}

// TestClosedLinkHoldsNothing: a closed link has neither connections nor hanging requests.
func TestClosedLinkHoldsNothing(t *testing.T) {
	begun := make(chan struct{})
	l := newServer(t, func(_ http.ResponseWriter, r *http.Request) { close(begun); <-r.Context().Done() }).link(t)
	ended := make(chan error, 1)
	go func() { ended <- send(context.Background(), t, l, http.MethodPost, "/api/v1/nodes") }()
	<-begun
	l.close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the request was answered")
		}
	case <-time.After(5 * time.Second):
		t.Error("the request hangs")
	}
	if err := send(t.Context(), t, l, http.MethodGet, "/api/v1/nodes"); err == nil {
		t.Error("a closed link connects")
	}
}

// TestTimeIsTheServers: a guest whose clock is behind marks pods as due for deletion a day ago.
func TestTimeIsTheServers(t *testing.T) {
	behind := 24 * time.Hour
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-behind).UTC().Format(http.TimeFormat))
	})
	l := s.link(t)
	for _, query := range []string{"", "?watch=true"} {
		behind *= 2
		_, c := l.config()
		response, err := c.Get("https://example.com/api/v1/pods" + query)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if off := l.clock.Since(time.Now().Add(-behind)); off.Abs() > 2*time.Second {
			t.Errorf("the clock is %s off", off)
		}
	}
}

func TestUserAgentIsTheOperators(t *testing.T) {
	var got atomic.Value
	l := newServer(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(r.UserAgent()) }).link(t)
	if err := send(t.Context(), t, l, http.MethodGet, "/api"); err != nil {
		t.Fatal(err)
	}
	if agent, _ := got.Load().(string); agent != userAgent || strings.Contains(agent, "Go-http-client") {
		t.Errorf("the request names %q", agent)
	}
}

// TestVerify: a session follows two watches.
func TestVerify(t *testing.T) {
	failure := &statusError{code: http.StatusForbidden}
	for name, c := range map[string]struct {
		ready int64
		do    func(*link)
		want  error
		asked int64
	}{
		"nothing fails": {ready: 200, do: func(l *link) { l.noteWatches(2, nil) }},
		"a watch ends in good order and begins again": {ready: 200, do: func(l *link) {
			l.noteWatches(1, nil)
			time.AfterFunc(20*time.Millisecond, func() { l.noteWatches(1, nil) })
		}},
		"a request fails and the server is ready": {ready: 200, asked: 1, do: func(l *link) { l.noteWatches(2, failure) }},
		"a watch fails and begins again": {ready: 200, asked: 1, do: func(l *link) {
			l.noteWatches(1, failure)
			time.AfterFunc(20*time.Millisecond, func() { l.noteWatches(1, nil) })
		}},
		"a request fails, the server is not ready and all watches are open": {ready: 500, asked: 1, do: func(l *link) { l.noteWatches(2, failure) }},
		"a watch fails and the server is not ready": {
			ready: 500, asked: 1, do: func(l *link) { l.noteWatches(1, failure) }, want: &statusError{code: 500},
		},
		"a request fails, the server refuses the operator and all watches are open": {
			ready: 401, asked: 1, do: func(l *link) { l.noteWatches(2, failure) }, want: &statusError{code: 401},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(t, http.NotFound)
			server.ready.Store(c.ready)
			s := &session{link: server.link(t)}
			c.do(s.link)
			got := s.verify(t.Context())
			if (got == nil) != (c.want == nil) || got != nil && classify(got) != classify(c.want) {
				t.Errorf("verify = %v, want %v", got, c.want)
			}
			if asked := server.asked.Load(); asked != c.asked {
				t.Errorf("the server was asked %d times whether it is ready, want %d", asked, c.asked)
			}
		})
	}
}

func TestWatchThatDoesNotBeginAgainIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{link: newLink(&addresses{}, &tls.Config{MinVersion: tls.VersionTLS12}, scheme.Scheme, newAllowance(), newIntake())}
		defer s.link.close()
		s.link.noteWatches(1, nil)
		began := time.Now()
		if err := s.verify(t.Context()); !errors.Is(err, errNoWatch) {
			t.Errorf("verify = %v, want %v", err, errNoWatch)
		}
		if took := time.Since(began); took != watchGrace {
			t.Errorf("it took %s, want %s", took, watchGrace)
		}
	})
}

// TestAnAPIServerThatStaysUnreadyIsLeft, although its watches are open: other masters may have one that is ready.
func TestAnAPIServerThatStaysUnreadyIsLeft(t *testing.T) {
	server := newServer(t, http.NotFound)
	server.ready.Store(http.StatusInternalServerError)
	s := &session{link: server.link(t)}
	s.link.noteWatches(2, &statusError{code: http.StatusInternalServerError})
	if err := s.verify(t.Context()); err != nil || s.unready.IsZero() {
		t.Fatalf("at first: %v, unready since %s", err, s.unready)
	}
	s.unready = s.unready.Add(-unreadyGrace)
	if err := s.verify(t.Context()); classify(err) != NotReady {
		t.Errorf("after %s: %v", unreadyGrace, err)
	}
	if order := s.link.addresses.order(); len(s.link.addresses.last) != 1 || !s.link.addresses.last[order[len(order)-1]] {
		t.Errorf("it is not tried after all others: %v, %v", order, s.link.addresses.last)
	}
	server.ready.Store(http.StatusOK)
	if err := s.verify(t.Context()); err != nil || !s.unready.IsZero() {
		t.Errorf("once it is ready: %v, unready since %s", err, s.unready)
	}
}
