package cloudconfig

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// TestRenderingTwiceGivesTheSameBytes: a difference would replace nodes that need not be replaced.
func TestRenderingTwiceGivesTheSameBytes(t *testing.T) {
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			first, second := mustRender(t, params()), mustRender(t, params())
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("rendered twice (-first +second):\n%s", diff)
			}
			for _, halves := range [][2]types.Config{{first.Public, second.Public}, {first.Private, second.Private}} {
				if mustEncode(t, halves[0]) != mustEncode(t, halves[1]) {
					t.Error("encoded twice, the texts differ")
				}
			}
		})
	}
}

// TestHalvesAreValidByThemselves: Ignition merges them, and refuses a half that is invalid. Rendering validates only
// both together, which costs half of the time.
func TestHalvesAreValidByThemselves(t *testing.T) {
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			data := mustRender(t, params())
			for _, half := range []types.Config{data.Public, data.Private} {
				if err := validate(half); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestNoSecretIsInThePublicHalf(t *testing.T) {
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			p := params()
			data := mustRender(t, p)
			raw, err := json.Marshal(data.Public)
			if err != nil {
				t.Fatal(err)
			}
			// Sources are percent-encoded; their decoded content matters.
			haystack := append(raw, describe(t, BootData{Public: data.Public})...)
			for what, secret := range secrets(p) {
				if bytes.Contains(haystack, secret) {
					t.Errorf("the public half contains the %s", what)
				}
			}
		})
	}
}

// The scan above would find nothing if it searched for the wrong values.
func TestEverySecretOfAMasterIsInItsPrivateHalf(t *testing.T) {
	p := fullParams()
	haystack := []byte(describe(t, BootData{Private: mustRender(t, p).Private}))
	found := secrets(p)
	for _, what := range []string{
		"encryption key", "bootstrap token", "registry token", "proxy password", "key of api", "key of ca", "key of etcd-m1bbb",
		"key of controller-manager in base64", "key of scheduler in base64",
	} {
		if !bytes.Contains(haystack, found[what]) {
			t.Errorf("the private half lacks the %s", what)
		}
	}
}

func TestKeysThatANodeDoesNotNeedAreNotOnIt(t *testing.T) {
	for name, unwanted := range map[string][]string{
		"master": {"etcd-m0aaa", "etcd-m2ccc", pki.EtcdCA, pki.FrontProxyCA, pki.Worker, pki.Etcd},
		"worker": {"etcd-m0aaa", "etcd-m1bbb", "etcd-m2ccc", pki.EtcdCA, pki.FrontProxyCA, pki.Worker, pki.Etcd, pki.CA, pki.API, pki.ServiceAccount, pki.Scheduler},
	} {
		t.Run(name, func(t *testing.T) {
			p := fullParams()
			if name == "worker" {
				p = workerParams()
			}
			text := describe(t, mustRender(t, p))
			for _, pair := range unwanted {
				if strings.Contains(text, secretBody(p, pair)) {
					t.Errorf("the key of %s is on a %s", pair, name)
				}
			}
		})
	}
}

func secretBody(p Params, pair string) string {
	return strings.Split(string(p.Certificates[pair].Key), "\n")[1]
}

func TestBothHalvesAreValidByThemselvesAndShareNoPath(t *testing.T) {
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			data := mustRender(t, params())
			paths := map[string]bool{}
			for _, half := range []types.Config{data.Public, data.Private} {
				raw, err := json.Marshal(half)
				if err != nil {
					t.Fatal(err)
				}
				if _, report, err := v3_3.Parse(raw); err != nil || len(report.Entries) > 0 {
					t.Errorf("Ignition says: %v %s", err, report)
				}
				for _, f := range half.Storage.Files {
					if paths[f.Path] {
						t.Errorf("%s is in both halves", f.Path)
					}
					paths[f.Path] = true
					if f.Overwrite == nil || !*f.Overwrite {
						t.Errorf("%s would fail the second boot", f.Path)
					}
					if len(f.Append) > 0 {
						t.Errorf("%s grows with each boot", f.Path)
					}
				}
			}
			for _, f := range data.Private.Storage.Files {
				if *f.Mode != modeSecret {
					t.Errorf("%s has mode %04o", f.Path, *f.Mode)
				}
			}
		})
	}
}

func TestHashTellsWhatMakesARunningNodeOutdated(t *testing.T) {
	base, err := Hash(fullParams())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change  func(*Params)
		changes bool
	}{
		"nothing":                 {func(*Params) {}, false},
		"another bootstrap token": {func(p *Params) { p.BootstrapToken = "fedcba.fedcba9876543210" }, false},
		"no bootstrap token":      {func(p *Params) { p.BootstrapToken = "" }, false},
		"other etcd members":      {func(p *Params) { p.EtcdMembers = testMembers("m1bbb", "m9zzz") }, false},
		"no etcd members":         {func(p *Params) { p.EtcdMembers = nil }, false},
		"etcd exists by now":      {func(p *Params) { p.EtcdState = EtcdExisting }, false},
		"the member has run":      {func(p *Params) { p.EtcdFoundingToken = "" }, false},
		"labels in another order": {func(p *Params) {
			p.Node.Labels = "kvm-operator.giantswarm.io/version=3.18.6, giantswarm.io/provider=kvm"
		}, false},
		"another version of Kubernetes": {func(p *Params) { p.Versions.Kubernetes = "1.35.5" }, true},
		"a renewed certificate":         {func(p *Params) { replaceCertificate(p, pki.API) }, true},
		"another encryption key":        {func(p *Params) { p.EncryptionKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZTA=" }, true},
		"another member's certificate":  {func(p *Params) { replaceCertificate(p, "etcd-m0aaa") }, false},
		"another ssh key":               {func(p *Params) { p.Cluster.Kubernetes.SSH.UserList[0].PublicKey += "2" }, true},
		"another proxy password":        {func(p *Params) { p.Settings.Proxy.HTTP = "http://guest:other@proxy.example.com:3128" }, true},
		"another worker":                {func(p *Params) { p.Cluster.Workers = append(p.Cluster.Workers, v1alpha1.Node{ID: "w9zzz"}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := fullParams()
			test.change(&p)
			got, err := Hash(p)
			if err != nil {
				t.Fatal(err)
			}
			if (got != base) != test.changes {
				t.Errorf("hash changed: %t, want %t", got != base, test.changes)
			}
		})
	}
}

func replaceCertificate(p *Params, name string) {
	pair := p.Certificates[name]
	pair.Certificate = pemText("CERTIFICATE", "renewed")
	p.Certificates[name] = pair
}

func TestMembersAreListedInOneOrder(t *testing.T) {
	p := fullParams()
	first := mustRender(t, p)
	slices.Reverse(p.EtcdMembers)
	if diff := cmp.Diff(first, mustRender(t, p)); diff != "" {
		t.Errorf("the order of the members matters:\n%s", diff)
	}
}

func TestAPathThatBothHalvesDefineIsRefusedByName(t *testing.T) {
	path := "/etc/twice"
	all := parts{files: []file{{path: path, mode: modePublic}, {path: path, mode: modeSecret, private: true}}}
	public, err := all.public()
	if err != nil {
		t.Fatal(err)
	}
	private, err := all.private()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(public); err != nil {
		t.Errorf("one half alone is valid, but: %s", err)
	}
	public.Storage.Files = append(public.Storage.Files, private.Storage.Files...)
	if err := validate(public); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v, want one that names %s", err, path)
	}
}
