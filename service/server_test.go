package service

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/kvm-operator/kvm-operator/integration/harness/loopback"
)

// get repeats a request until it has the wanted response.
func get(t *testing.T, url string, want func(code int, body string) error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		code, body, err := askOnce(t, url)
		if err == nil {
			err = want(code, body)
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s", url, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func askOnce(t *testing.T, url string) (int, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func answers(code int, words ...string) func(int, string) error {
	return func(got int, body string) error {
		if got != code {
			return fmt.Errorf("it answers %d %s, want %d", got, body, code)
		}
		for _, word := range words {
			if !strings.Contains(body, word) {
				return fmt.Errorf("it answers %q, which does not say %q", body, word)
			}
		}
		return nil
	}
}

// TestHealthIsServedBeforeTheCachesAreFilled checks that the operator is alive, is not ready and reports what it waits
// for.
func TestHealthIsServedBeforeTheCachesAreFilled(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"%s is forbidden"}`, r.URL.Path)
	}))
	defer refusing.Close()
	for name, test := range map[string]struct {
		host string
		says []string
	}{
		"the API server is not there": {"http://127.0.0.1:1", []string{"caches are not filled yet: "}},
		"a right is missing":          {refusing.URL, []string{"caches are not filled yet: ", "is forbidden", "v1.ConfigMap: ", "and others"}},
	} {
		t.Run(name, func(t *testing.T) {
			address := "http://" + loopback.FreeAddress(t)
			ctx, cancel := context.WithCancel(t.Context())
			s, err := New(ctx, Config{REST: &rest.Config{Host: test.host}, Selector: labels.Everything(), ListenAddress: address})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			get(t, address+"/healthz", answers(http.StatusOK, "Service up."))
			get(t, address+"/readyz", answers(http.StatusServiceUnavailable, test.says...))
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("it ends with %s", err)
			}
			if code, _, err := askOnce(t, address+"/healthz"); err == nil {
				t.Errorf("it answers %d after its end", code)
			}
		})
	}
}

// TestAPortThatIsTakenEndsTheOperator checks that the operator ends at once, although the caches are not filled.
func TestAPortThatIsTakenEndsTheOperator(t *testing.T) {
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	s, err := New(t.Context(), Config{REST: &rest.Config{Host: "http://127.0.0.1:1"}, Selector: labels.Everything(), ListenAddress: taken.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("err = %v", err)
	}
}
