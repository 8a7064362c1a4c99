package vault

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// TestVaultIsLeftAloneWhileItIsInTrouble: requests within the pause get the last error. After the pause one of many is
// sent; once it succeeds, all are.
func TestVaultIsLeftAloneWhileItIsInTrouble(t *testing.T) {
	var asked atomic.Int32
	var status atomic.Int32
	entered, answer := make(chan struct{}, 16), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		entered <- struct{}{}
		<-answer
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("some"), 0o600); err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakeClock(time.Now())
	issuer, err := New(Config{Address: server.URL, TokenFile: token, TTL: LeastTTL}, clock, nil)
	if err != nil {
		t.Fatal(err)
	}
	revoke := func() string {
		err := issuer.Revoke([]pki.Request{{Usage: pki.UsageAuthority, CommonName: "ab1cd-ca"}})
		if p, ok := problem.As(err); ok {
			return p.Reason
		}
		return fmt.Sprint(err)
	}
	want := func(what string, got, want string, requests int32) {
		t.Helper()
		if got != want || asked.Load() != requests {
			t.Errorf("%s: got %q after %d requests, want %q after %d", what, got, asked.Load(), want, requests)
		}
	}
	status.Store(http.StatusServiceUnavailable)
	first := make(chan string, 1)
	ask := func() {
		go func() { first <- revoke() }()
		<-entered
	}
	ask()
	answer <- struct{}{}
	want("sealed", <-first, reasonSealed, 1)
	want("at rest", revoke(), reasonSealed, 1)
	clock.Step(restFor)
	ask()
	want("beside the one that asks", revoke(), reasonSealed, 2)
	answer <- struct{}{}
	want("sealed yet", <-first, reasonSealed, 2)
	clock.Step(restFor)
	status.Store(http.StatusTooManyRequests)
	ask()
	answer <- struct{}{}
	want("asked too often", <-first, reasonRefused, 3)
	want("at rest after that", revoke(), reasonRefused, 3)
	clock.Step(restFor)
	status.Store(http.StatusBadRequest)
	ask()
	answer <- struct{}{}
	want("answered", <-first, reasonRefused, 4)
	ask()
	answer <- struct{}{}
	want("after an answer", <-first, reasonRefused, 5)
}

// TestWordsOfVaultAreTheSameEachTime: the request is repeated when a condition with them changes.
func TestWordsOfVaultAreTheSameEachTime(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		end := time.Date(2031, 5, 6, 7, 8, int(asked.Add(1)), 9, time.UTC).Format(time.RFC3339Nano)
		_, _ = fmt.Fprintf(w, `{"errors": ["cannot satisfy request, as TTL would result in notAfter of %s that is beyond the expiration of the CA certificate at 2030-01-02T03:04:05Z"]}`, end)
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("some"), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer, err := New(Config{Address: server.URL, TokenFile: token, TTL: LeastTTL}, testingclock.NewFakeClock(time.Now()), nil)
	if err != nil {
		t.Fatal(err)
	}
	issue := func() string {
		_, err := issuer.Issue(pki.Request{Usage: pki.UsageAuthority, CommonName: "ab1cd-ca"}, pki.KeyPair{})
		return fmt.Sprint(err)
	}
	first, second := issue(), issue()
	if first != second || !strings.Contains(first, "notAfter of 2031-05-06 that is beyond the expiration of the CA certificate at 2030-01-02") {
		t.Errorf("after %d requests Vault is said to say %q, then %q", asked.Load(), first, second)
	}
}
