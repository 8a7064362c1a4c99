package osimage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"github.com/google/go-cmp/cmp"
)

func TestMismatchAfterAWholeDownloadIsRefused(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	good, bad := noise(1, kernelSize), noise(5, kernelSize)
	m.put("/kernel", bad)
	c, _ := newCache(t, t.TempDir())
	want := &MismatchError{File: image.Kernel.URL, Expected: "sha256 " + sumOf(good), Actual: "sha256 " + sumOf(bad)}
	for _, when := range []string{"at first", "at the next try"} {
		_, err := c.Get(t.Context(), image)
		var got *MismatchError
		if !errors.As(err, &got) || *got != *want {
			t.Errorf("%s: error %v, want %v", when, err, want)
		}
		if diff := cmp.Diff([]string{"/kernel"}, m.asked()); diff != "" {
			t.Errorf("%s: requests %s", when, diff)
		}
		if files, err := filepath.Glob(filepath.Join(c.Directory, "*", "kernel*")); err != nil || len(files) > 0 {
			t.Errorf("%s: the bad file is kept: %v, %v", when, files, err)
		}
	}
	m.put("/kernel", good)
	requireContent(t, get(t, c, image).Kernel, good)
}

var now = time.Now()

func day(n int) time.Time { return now.AddDate(0, 0, n) }

// TestSignatures: every case is a signature of the kernel, made yesterday unless it says otherwise, and the user's
// keyring.
func TestSignatures(t *testing.T) {
	content := noise(1, kernelSize)
	trusted := newSigner(t, day(-100), 0)
	foreign := newSigner(t, day(-100), 0)
	expired := newSigner(t, day(-100), 50*24*time.Hour)
	revoked := newSigner(t, day(-100), 0)
	compromised := sign(t, revoked, day(-60), content)
	if err := revoked.Revoke(packet.KeyCompromised, "stolen", &packet.Config{Time: func() time.Time { return day(-10) }}); err != nil {
		t.Fatal(err)
	}
	good := sign(t, trusted, day(-1), content)
	for name, c := range map[string]struct {
		signature []byte
		keys      *Keyring
		want      string // "" for a valid one, otherwise how MismatchError.Actual begins
	}{
		"binary":                        {signature: good},
		"armored":                       {signature: armored(t, openpgp.SignatureType, good)},
		"beside one by an unknown key":  {signature: append(sign(t, foreign, day(-1), content), good...)},
		"by one of many keys":           {signature: good, keys: ring(t, foreign, trusted)},
		"of other content":              {signature: sign(t, trusted, day(-1), []byte("other")), want: "one by key "},
		"by an unknown key":             {signature: sign(t, foreign, day(-1), content), want: "one by key "},
		"by a key that expired later":   {signature: sign(t, expired, day(-60), content), keys: ring(t, expired)},
		"by a key that had expired":     {signature: sign(t, expired, day(-1), content), keys: ring(t, expired), want: "one by key "},
		"by a key that was stolen":      {signature: compromised, keys: ring(t, revoked), want: "one by key "},
		"from the future":               {signature: sign(t, trusted, day(1), content), want: "one by key "},
		"that is a web page":            {signature: []byte("<html>not found</html>"), want: "a broken one: it is no OpenPGP signature"},
		"that is empty":                 {want: "a broken one: it is no OpenPGP signature"},
		"that breaks off":               {signature: good[:len(good)/2], want: "a broken one: it is no OpenPGP signature"},
		"that is something else inside": {signature: armored(t, openpgp.PublicKeyType, good), want: "a broken one: it is a PGP PUBLIC KEY BLOCK"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t)
			image := m.image("own")
			image.Kernel.SHA256, image.Kernel.SignatureURL = "", m.put("/kernel.sig", c.signature)
			cache, _ := newCache(t, t.TempDir())
			cache.Keys = c.keys
			if c.keys == nil {
				cache.Keys = ring(t, trusted)
			}
			local, err := cache.Get(t.Context(), image)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				requireContent(t, local.Kernel, content)
				return
			}
			var mismatch *MismatchError
			if !errors.As(err, &mismatch) || !strings.HasPrefix(mismatch.Actual, c.want) || mismatch.File != image.Kernel.URL {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if want := "a signature by " + cache.Keys.String(); mismatch.Expected != want {
				t.Errorf("expected %q, want %q", mismatch.Expected, want)
			}
			if left := leftovers(t, cache.Directory); len(left) > 0 {
				t.Errorf("the bad file is kept: %v", left)
			}
		})
	}
}

func armored(t *testing.T, kind string, content []byte) []byte {
	t.Helper()
	var text bytes.Buffer
	w, err := armor.Encode(&text, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func TestNothingLargeIsDownloadedForASignatureThatIsNotTrusted(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	image.Kernel.SignatureURL = m.put("/kernel.sig", sign(t, newSigner(t, day(-1), 0), now, noise(1, kernelSize)))
	c, _ := newCache(t, t.TempDir()) // trusts Flatcar
	var mismatch *MismatchError
	if _, err := c.Get(t.Context(), image); !errors.As(err, &mismatch) || !strings.HasSuffix(mismatch.Actual, "which is not trusted") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"/kernel.sig"}, m.asked()); diff != "" {
		t.Errorf("requests: %s", diff)
	}
}

func TestMissingSignature(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	image.Kernel.SignatureURL = m.URL + "/kernel.sig"
	c, _ := newCache(t, t.TempDir())
	if _, err := c.Get(t.Context(), image); err == nil || !strings.Contains(err.Error(), "kernel: its signature: "+m.URL+"/kernel.sig: the server answers 404") {
		t.Errorf("error %v", err)
	}
}

func TestSignatureThatIsTooLarge(t *testing.T) {
	m := newMirror(t)
	image := m.image("own")
	image.Kernel.SignatureURL = m.put("/kernel.sig", noise(1, maxSignature+1))
	c, _ := newCache(t, t.TempDir())
	if _, err := c.Get(t.Context(), image); err == nil || !strings.Contains(err.Error(), "too large for a signature") {
		t.Errorf("error %v", err)
	}
	if requests := m.asked(); len(requests) != 1 {
		t.Errorf("requests: %v", requests)
	}
}

func TestImageThatOtherKeysVouchedForIsVerifiedAgain(t *testing.T) {
	m := newMirror(t)
	one, other := newSigner(t, day(-1), 0), newSigner(t, day(-1), 0)
	image := m.image("own")
	image.Kernel.SignatureURL = m.put("/kernel.sig", sign(t, one, now, noise(1, kernelSize)))
	c, _ := newCache(t, t.TempDir())
	c.Keys = ring(t, one)
	get(t, c, image)
	c.Keys = ring(t, other)
	var mismatch *MismatchError
	if _, err := c.Get(t.Context(), image); !errors.As(err, &mismatch) {
		t.Errorf("error %v", err)
	}
}

func TestBuiltInKeySignsReleasesOfFlatcar(t *testing.T) {
	keys := FlatcarKeys()
	if got := keys.String(); got != "F88CFEDEFF29A5B4D9523864E25D9AED0593B34A" {
		t.Errorf("primary key %s", got)
	}
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	key, ok := keys.entities[0].SigningKeyById(at, 0x32DA80F91EF52974, nil)
	if !ok {
		t.Fatalf("the subkey does not sign on %s", at)
	}
	if got := fmt.Sprintf("%X", key.PublicKey.Fingerprint); got != "52F145DFD00BBDCD928CBB5A32DA80F91EF52974" {
		t.Errorf("subkey %s", got)
	}
	if _, ok := keys.entities[0].SigningKeyById(at.AddDate(1, 0, 0), 0x32DA80F91EF52974, nil); ok {
		t.Error("the subkey does not expire; this test sees nothing")
	}
}

func TestKeysFromFile(t *testing.T) {
	one, other := newSigner(t, day(-1), 0), newSigner(t, day(-1), 0)
	var binary bytes.Buffer
	if err := errors.Join(one.Serialize(&binary), other.Serialize(&binary)); err != nil {
		t.Fatal(err)
	}
	both := ring(t, one, other).String()
	block := func(e *openpgp.Entity) string {
		var text bytes.Buffer
		if err := e.Serialize(&text); err != nil {
			t.Fatal(err)
		}
		return string(armored(t, openpgp.PublicKeyType, text.Bytes()))
	}
	for name, c := range map[string]struct{ text, want, err string }{
		"binary":                    {text: binary.String(), want: both},
		"armored":                   {text: string(armored(t, openpgp.PublicKeyType, binary.Bytes())), want: both},
		"one block after the other": {text: "my keys\n" + block(one) + "\n\n" + block(other) + "\n", want: both},
		"empty":                     {text: "", err: "there is no key in it"},
		"nonsense":                  {text: "hello", err: "reading signing keys from "},
		"a block that breaks off":   {text: block(one)[:100], err: "reading signing keys from "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			keys, err := KeysFromFile(path)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || keys != nil {
					t.Errorf("%v, error %v, want %q", keys, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if keys.String() != c.want {
				t.Errorf("keys %s, want %s", keys, c.want)
			}
		})
	}
	if _, err := KeysFromFile(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
