package machines

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/jsonlog"
)

// pair is a certificate and its key in PEM.
type pair struct{ certificate, key []byte }

// newPair makes a self-signed certificate for the address that tests listen at.
func newPair(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// mount puts a pair into a directory as the kubelet does with a Secret: files are links to those of ..data, which is a link
// to a directory that is replaced as a whole.
func (p pair) mount(t *testing.T, directory string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	data, next := filepath.Join(directory, "..data"), filepath.Join(directory, "..data_tmp")
	former, _ := os.Readlink(data) // there is none at first
	version := filepath.Join(directory, fmt.Sprintf("..%d", time.Now().UnixNano()))
	must(os.Mkdir(version, 0o700))
	must(os.WriteFile(filepath.Join(version, "tls.crt"), p.certificate, 0o600))
	must(os.WriteFile(filepath.Join(version, "tls.key"), p.key, 0o600))
	must(os.Symlink(filepath.Base(version), next))
	must(os.Rename(next, data))
	if former != "" {
		must(os.RemoveAll(filepath.Join(directory, former)))
		return
	}
	must(os.Symlink("..data/tls.crt", filepath.Join(directory, "tls.crt")))
	must(os.Symlink("..data/tls.key", filepath.Join(directory, "tls.key")))
}

// scrape reads metrics with a client that trusts one certificate alone, over its own connection.
func (p pair) scrape(ctx context.Context, address string, most uint16) (string, error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.certificate)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: most},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.ProtoMajor != 1 {
		err = fmt.Errorf("the protocol is %s", response.Proto)
	}
	return string(body), err
}

// until waits for a condition, which says what is missing.
func until(t *testing.T, missing func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = missing(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// awaitServed waits until the pair is served.
func (p pair) awaitServed(t *testing.T, address string) {
	t.Helper()
	until(t, func() error {
		_, err := p.scrape(t.Context(), address, tls.VersionTLS13)
		return err
	})
}

// servingTLS returns what is served with the pair in a directory.
func servingTLS(t *testing.T, directory string) Serving {
	t.Helper()
	watcher, err := certwatcher.New(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	var why atomic.Value
	why.Store("")
	s := serving(&why)
	s.Certificate = watcher
	return s
}

func TestMetricsByTLSAreServedByTLSAlone(t *testing.T) {
	directory, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	p := newPair(t)
	p.mount(t, directory)
	s := servingTLS(t, directory)
	lines, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lines.Close() }) // after the servers, which write to it
	s.Logger = jsonlog.New(lines, "debug")
	servers := serve(t, s)
	address := servers.Address(s.Metrics)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if text, err := p.scrape(t.Context(), address, version); err != nil || !strings.Contains(text, "one 1") {
			t.Errorf("by %s the answer is %v %q", tls.VersionName(version), err, text)
		}
	}
	if _, err := p.scrape(t.Context(), address, tls.VersionTLS11); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("by TLS 1.1 the answer is %v", err)
	}
	if _, err := newPair(t).scrape(t.Context(), address, tls.VersionTLS13); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client that trusts another certificate is answered %v", err)
	}
	if status, body := ask(t, http.MethodGet, "http://"+address+"/metrics"); status != http.StatusBadRequest || strings.Contains(body, "one") {
		t.Errorf("plain HTTP is answered %d %q", status, body)
	}
	expect(t, http.MethodGet, "http://"+servers.Address(s.Probes)+"/healthz", http.StatusOK, "ok")
	until(t, func() error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if lines := string(text); !strings.Contains(lines, `"level":"debug"`) || !strings.Contains(lines, "HTTP request to an HTTPS server") {
			return fmt.Errorf("the log is %q, without the connection by plain HTTP", lines)
		}
		return nil
	})
}

// TestACertificateIsReplacedWhileItIsServed: clients that trust one pair alone see which is served.
func TestACertificateIsReplacedWhileItIsServed(t *testing.T) {
	directory := t.TempDir()
	first, second, third := newPair(t), newPair(t), newPair(t)
	first.mount(t, directory)
	s := servingTLS(t, directory)
	address := serve(t, s).Address(s.Metrics)
	first.awaitServed(t, address)

	second.mount(t, directory)
	second.awaitServed(t, address)
	if _, err := first.scrape(t.Context(), address, tls.VersionTLS13); err == nil {
		t.Error("the first pair is served beside the second")
	}

	before := errorsOfWatcher(t)
	pair{third.certificate, first.key}.mount(t, directory)
	until(t, func() error {
		if errorsOfWatcher(t) == before {
			return errors.New("the certificate with the key of another is not found")
		}
		return nil
	})
	second.awaitServed(t, address)

	third.mount(t, directory)
	third.awaitServed(t, address)
}

// errorsOfWatcher returns how often files were read that are no pair.
func errorsOfWatcher(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "certwatcher_read_certificate_errors_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("there is no metric of the watcher")
	return 0
}
