package cmd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
)

// TestMetricsAreServedByTLSWhereADirectoryIsSet: the directory has a certificate and a key under other names than the usual ones.
func TestMetricsAreServedByTLSWhereADirectoryIsSet(t *testing.T) {
	directory := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: certificate}, "key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(directory, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		variables  map[string]string
		want, fail bool
	}{
		"by default":               {nil, false, false},
		"with a directory":         {map[string]string{"METRICS_CERT_PATH": directory}, true, false},
		"without metrics":          {map[string]string{"METRICS_CERT_PATH": "/does/not/exist", "METRICS_BIND_ADDRESS": "0"}, false, false},
		"with nothing served":      {map[string]string{"METRICS_CERT_PATH": directory, "METRICS_BIND_ADDRESS": "0", "HEALTH_PROBE_BIND_ADDRESS": "0"}, false, false},
		"with a missing directory": {map[string]string{"METRICS_CERT_PATH": "/does/not/exist"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := machinesFlags(t, c.variables, "--metrics-cert-name=cert.pem", "--metrics-cert-key=key.pem")
			if err != nil {
				t.Fatal(err)
			}
			watcher, err := machinesCertificate(r)
			if (watcher != nil) != c.want || (err != nil) != c.fail || err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the certificate is %v, %v", watcher, err)
			}
		})
	}
}
