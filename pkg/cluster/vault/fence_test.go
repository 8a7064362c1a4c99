package vault

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// TestAClosedFenceKeepsVaultFromBeingAsked also checks that a closed fence does not count as a failure of Vault: once
// the fence opens, Vault is called at once.
func TestAClosedFenceKeepsVaultFromBeingAsked(t *testing.T) {
	f, _ := newFakeVault(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("some"), 0o600); err != nil {
		t.Fatal(err)
	}
	closed := fence.New("giantswarm/kvm-operator", time.Hour, fence.SinceBoot)
	issuer, err := New(Config{Address: f.URL, TokenFile: token, MountPrefix: "pki-", TTL: LeastTTL}, clock.RealClock{}, closed)
	if err != nil {
		t.Fatal(err)
	}
	request := pki.Request{Name: pki.EtcdCA, CommonName: "ab1cd-etcd", Usage: pki.UsageAuthority}
	if _, err := issuer.Issue(request, pki.KeyPair{}); !errors.Is(err, fence.ErrRefused) || len(f.asked) > 0 {
		t.Errorf("through the closed fence: %v, Vault is asked %q", err, f.asked)
	}
	closed.Renewed(closed.Now())
	if _, err := issuer.Issue(request, pki.KeyPair{}); err != nil {
		t.Errorf("through the open fence: %v", err)
	}
}
