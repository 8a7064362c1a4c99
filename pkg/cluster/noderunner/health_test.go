package noderunner

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
)

// An API server counts once it has been ready. After that, only one that refuses connections does not count.
func TestHowAnAPIServerIsJudged(t *testing.T) {
	var answer atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := int(answer.Load())
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		if code == 0 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(code)
	}))
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	h := &health{address: at.Addr(), client: healthClient(new(net.Dialer).DialContext)}
	h.client.Timeout = 200 * time.Millisecond
	ask := func(code int, want string) {
		t.Helper()
		answer.Store(int32(code))
		if got := h.askAPI(t.Context(), int(at.Port())); !strings.Contains(got, want) || want == keeper.OK && got != keeper.OK {
			t.Errorf("the API server is judged %q, want %q", got, want)
		}
	}
	ask(http.StatusInternalServerError, "500")
	ask(0, "deadline exceeded")
	ask(http.StatusOK, keeper.OK)
	ask(http.StatusInternalServerError, keeper.OK)
	ask(0, keeper.OK)
	h.unready.Add(-int64(unreadyMost))
	ask(0, keeper.OK)
	ask(http.StatusInternalServerError, "500")
	ask(http.StatusInternalServerError, "500")
	ask(http.StatusOK, keeper.OK)
	ask(http.StatusInternalServerError, keeper.OK)
	server.CloseClientConnections()
	server.Close()
	ask(0, "connection refused")
	if h.served.Load() {
		t.Error("an API server that has gone counts as one that was ready")
	}
	if got := h.askAPI(t.Context(), 0); got != "" {
		t.Errorf("without a port it is judged %q", got)
	}
}
