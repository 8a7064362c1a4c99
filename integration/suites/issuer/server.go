// Package issuer tests certificates from a real Vault: how they are issued, renewed, rotated and revoked, and what
// happens while Vault is sealed, denies requests, is slow or is gone.
package issuer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster/process"
)

// patience is how long Vault may take to start.
const patience = time.Minute

// Server is an unsealed Vault.
type Server struct {
	// Client is the client of Vault's root user.
	Client  *api.Client
	Address string
	// TokenFile holds the token of Vault's root user.
	TokenFile string

	process *process.Process
	key     string
}

// Start starts a Vault that stops with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	binary, err := filepath.Abs(filepath.Join("..", "..", "..", ".tools", "vault"))
	must(t, err)
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("these tests need Vault, run make tools: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	dir := t.TempDir()
	s := &Server{Address: "http://" + address, TokenFile: filepath.Join(dir, "token")}
	s.process, err = process.Start(process.Command{Name: "vault", Path: binary, Args: []string{address}, Dir: dir})
	must(t, err)
	t.Cleanup(func() { _ = s.process.Stop(0) })
	config := api.DefaultConfig()
	must(t, config.Error)
	config.Address = s.Address
	s.Client, err = api.NewClient(config)
	must(t, err)
	s.begin(t)
	return s
}

func (s *Server) begin(t testing.TB) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		answer, err := s.Client.Sys().Init(&api.InitRequest{SecretShares: 1, SecretThreshold: 1})
		if err != nil {
			return errors.Join(err, s.process.Failure())
		}
		s.key = answer.Keys[0]
		s.Client.SetToken(answer.RootToken)
		return os.WriteFile(s.TokenFile, []byte(answer.RootToken+"\n"), 0o600)
	})
	s.Unseal(t)
}

// Unseal unseals Vault.
func (s *Server) Unseal(t testing.TB) {
	t.Helper()
	_, err := s.Client.Sys().Unseal(s.key)
	must(t, err)
	lab.Eventually(t, patience, func() error {
		health, err := s.Client.Sys().Health()
		if err == nil && (health.Sealed || health.Standby) {
			err = fmt.Errorf("sealed: %t, standby: %t", health.Sealed, health.Standby)
		}
		return err
	})
}

// Seal seals Vault.
func (s *Server) Seal(t testing.TB) {
	t.Helper()
	must(t, s.Client.Sys().Seal())
}

// Stop stops Vault, which then loses everything.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	must(t, s.process.Stop(time.Second))
}

// Mounts returns the paths of the secrets engines of type pki.
func (s *Server) Mounts(t testing.TB) []string {
	t.Helper()
	all, err := s.Client.Sys().ListMounts()
	must(t, err)
	var paths []string
	for path, mount := range all {
		if mount.Type == "pki" {
			paths = append(paths, path)
		}
	}
	return paths
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
