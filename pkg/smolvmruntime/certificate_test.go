package smolvmruntime

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// secureServer does handshakes with an identity.
func secureServer(t *testing.T, i *identity) string {
	t.Helper()
	listener := tls.NewListener(listen(t), secure(i))
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.(*tls.Conn).Handshake()
			}()
		}
	}()
	return listener.Addr().String()
}

// dial trusts the published certificates alone, at a time.
func dial(t *testing.T, address, published string, now time.Time) error {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(published)) {
		t.Fatal("there is no certificate to trust")
	}
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: pool, Time: func() time.Time { return now }, MinVersion: tls.VersionTLS12}}
	c, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

func identityIn(t *testing.T, state string, now time.Time) *identity {
	t.Helper()
	i, err := newIdentity(&Settings{Node: "node-1", PodIP: "192.0.2.7", State: state}, quiet, now)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestTheCertificateIsOfTheNode(t *testing.T) {
	state, now := t.TempDir(), time.Now()
	i := identityIn(t, state, now)
	leaf := i.current.leaf
	for _, name := range []string{"node-1", "192.0.2.7", "127.0.0.1"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if life := leaf.NotAfter.Sub(now); life < certificateLife-time.Minute || life > certificateLife {
		t.Errorf("it is valid for %s", life)
	}
	if leaf.PublicKeyAlgorithm != x509.ECDSA || leaf.IsCA {
		t.Errorf("its key is %s, CA %v", leaf.PublicKeyAlgorithm, leaf.IsCA)
	}
	if strings.Contains(i.Published(), "PRIVATE") {
		t.Error("the key is published")
	}
	found, err := os.Stat(filepath.Join(state, currentFile))
	if err != nil || found.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v: %v", found, err)
	}
	if err := dial(t, secureServer(t, i), i.Published(), now); err != nil {
		t.Error(err)
	}
	// Another node's certificate, and that of another client's trust, are refused.
	other := identityIn(t, t.TempDir(), now)
	if err := dial(t, secureServer(t, i), other.Published(), now); err == nil {
		t.Error("a client that trusts another certificate is content")
	}
}

func TestCertificatesThatAreKept(t *testing.T) {
	now := time.Now()
	for sentence, test := range map[string]struct {
		change func(t *testing.T, state string)
		ip     string
		after  time.Duration
		same   bool
	}{
		"a restart changes nothing":               {same: true},
		"a restart soon before the renewal, too":  {after: certificateLife/2 + time.Hour, same: true},
		"another address makes another":           {ip: "192.0.2.8"},
		"one that has ended is replaced":          {after: certificateLife + time.Hour},
		"one that ends during a renewal, as well": {after: certificateLife - time.Minute},
		"a file that is damaged is replaced": {change: func(t *testing.T, state string) {
			if err := os.WriteFile(filepath.Join(state, currentFile), []byte("no PEM"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"a file that is lost is made again": {change: func(t *testing.T, state string) {
			if err := os.Remove(filepath.Join(state, currentFile)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			state := t.TempDir()
			before := identityIn(t, state, now)
			if test.change != nil {
				test.change(t, state)
			}
			ip := "192.0.2.7"
			if test.ip != "" {
				ip = test.ip
			}
			later := now.Add(test.after)
			after, err := newIdentity(&Settings{Node: "node-1", PodIP: ip, State: state}, quiet, later)
			if err != nil {
				t.Fatal(err)
			}
			if (before.Published() == after.Published()) != test.same {
				t.Errorf("the same: %v", !test.same)
			}
			if err := after.current.leaf.VerifyHostname(ip); err != nil {
				t.Error(err)
			}
			if err := dial(t, secureServer(t, after), after.Published(), later); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRenewal goes through a renewal with a clock: at each time, a client that trusts what was published reaches the server.
func TestRenewal(t *testing.T) {
	state, start := t.TempDir(), time.Now()
	i := identityIn(t, state, start)
	address := secureServer(t, i)
	first := i.Published()
	worn := i.current.wornAt()
	i.Refresh(worn.Add(-time.Minute))
	if i.Published() != first {
		t.Fatal("it is renewed too soon")
	}
	i.Refresh(worn)
	both := i.Published()
	if !strings.HasPrefix(both, first) || len(both) <= len(first) {
		t.Fatal("the next certificate is not published behind the one that is served")
	}
	// Clients that have not heard of it are served on, as long as it is not published.
	i.Refresh(worn.Add(time.Hour))
	if err := dial(t, address, first, worn.Add(time.Hour)); err != nil || i.Published() != both {
		t.Fatalf("the next certificate is served before clients can know it: %v", err)
	}
	told := worn.Add(2 * time.Hour)
	i.Told(first, told.Add(-time.Minute)) // this is not it
	i.Told(both, told)
	i.Refresh(told.Add(overlap - time.Second))
	if err := dial(t, address, first, told); err != nil {
		t.Fatal(err)
	}
	i.Refresh(told.Add(overlap))
	if err := dial(t, address, first, told); err == nil {
		t.Error("the next certificate is not served")
	}
	if err := dial(t, address, both, told); err != nil {
		t.Error(err)
	}
	last := i.Published()
	if last != strings.TrimPrefix(both, first) {
		t.Error("the last certificate is still published")
	}
	if again := identityIn(t, state, told.Add(overlap)); again.Published() != last {
		t.Error("a restart serves another certificate")
	}
}

// TestARenewalThatWasInterrupted: a restarted runtime continues where it was, and waits again.
func TestARenewalThatWasInterrupted(t *testing.T) {
	state, start := t.TempDir(), time.Now()
	i := identityIn(t, state, start)
	worn := i.current.wornAt()
	i.Refresh(worn)
	again := identityIn(t, state, worn)
	if again.Published() != i.Published() {
		t.Error("a restart publishes something else")
	}
	again.Refresh(worn.Add(overlap))
	if again.Published() != i.Published() {
		t.Error("the next certificate is served before it is published")
	}
	// Without an API server to publish it, the next one is served when the one before ends.
	again.Refresh(again.current.leaf.NotAfter.Add(-overlap / 2))
	if !again.current.leaf.NotAfter.After(worn.Add(certificateLife - time.Minute)) {
		t.Error("a certificate that ends is served on")
	}
}

func TestFilesOfCertificates(t *testing.T) {
	directory, now := t.TempDir(), time.Now()
	cert, key := filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	put := func(node string) string {
		made, text, err := selfSigned(node, "192.0.2.7", now)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{cert, key} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return string(made.public())
	}
	settings := &Settings{Node: "node-1", State: t.TempDir(), CertFile: cert, KeyFile: key}
	if _, err := newIdentity(settings, quiet, now); err == nil {
		t.Error("files that are missing are no mistake")
	}
	first := put("a")
	i, err := newIdentity(settings, quiet, now)
	if err != nil || i.Published() != first {
		t.Fatalf("another certificate is published: %v", err)
	}
	address := secureServer(t, i)
	if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	i.Refresh(now)
	if err := dial(t, address, first, now); err != nil {
		t.Errorf("while files are replaced: %v", err)
	}
	second := put("b")
	i.Refresh(now)
	if i.Published() != second {
		t.Error("the new file is not read")
	}
	if err := dial(t, address, second, now); err != nil {
		t.Error(err)
	}
	var config net.ListenConfig // the address is still open
	if l, err := config.Listen(t.Context(), "tcp", address); err == nil {
		l.Close()
		t.Error("the server has ended")
	}
}
