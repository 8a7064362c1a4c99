package osimage

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const smallest = `{"name":"own","kernel":{"url":"https://example.org/k"},"initrd":{"url":"https://example.org/i"}}`

// with returns the smallest image with a part of it replaced.
func with(old, replacement string) string { return strings.Replace(smallest, old, replacement, 1) }

func TestParse(t *testing.T) {
	file := func(name string) File { return File{URL: "https://example.org/" + name} }
	sum := strings.Repeat("0a", 32)
	for name, c := range map[string]struct {
		text string
		want Image
	}{
		"the smallest": {text: smallest, want: Image{Name: "own", Kernel: file("k"), Initrd: file("i")}},
		"everything": {
			text: `{"name":"flatcar-4459.2.1","kernel":{"url":"http://example.org/k","sha256":"` + sum + `","signatureURL":"https://example.org/k.sig"},` +
				`"initrd":{"url":"file:///images/initrd"},"rootFS":{"url":"https://example.org/r"},` +
				`"kernelArguments":["quiet","a=\"b c\""],"ignitionKey":"opt/com.coreos/config"}`,
			want: Image{
				Name:   "flatcar-4459.2.1",
				Kernel: File{URL: "http://example.org/k", SHA256: sum, SignatureURL: "https://example.org/k.sig"},
				Initrd: File{URL: "file:///images/initrd"}, RootFS: &File{URL: "https://example.org/r"},
				KernelArguments: []string{"quiet", `a="b c"`}, IgnitionKey: "opt/com.coreos/config",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":               {text: "", want: "reading the description of the image: EOF"},
		"no JSON":               {text: "own", want: "reading the description of the image: "},
		"an unknown field":      {text: with(`"name"`, `"root":1,"name"`), want: `unknown field "root"`},
		"something behind":      {text: smallest + "{}", want: "there is something behind its end"},
		"a name that is a path": {text: with("own", "../own"), want: `name "../own" has to be`},
		"no name":               {text: with("own", ""), want: `name "" has to be`},
		"a long name":           {text: with("own", strings.Repeat("a", 64)), want: "has to be at most 63"},
		"no kernel":             {text: with(`"kernel":{"url":"https://example.org/k"},`, ""), want: "kernel: url is missing"},
		"no file in the URL":    {text: with("https://example.org/k", "https://example.org/"), want: `kernel: url "https://example.org/" has to be`},
		"no host in the URL":    {text: with("https://example.org/k", "https:///k"), want: "has to be an http, https or file URL"},
		"another scheme":        {text: with("https://example.org/k", "ftp://example.org/k"), want: "has to be an http, https or file URL"},
		"a relative file URL":   {text: with("https://example.org/k", "file:k"), want: "has to be an http, https or file URL"},
		"a file of a host":      {text: with("https://example.org/k", "file://host/k"), want: "has to be an http, https or file URL"},
		"a detour":              {text: with("https://example.org/k", "file:///images/../../etc/shadow"), want: "has to be an http, https or file URL"},
		"a space in the URL":    {text: with("https://example.org/k", "https://example.org/ k"), want: "url is no URL"},
		"a URL that is broken":  {text: with("https://example.org/k", "https://example.org:x/k"), want: "url is no URL"},
		"a long URL":            {text: with("https://example.org/k", "https://example.org/"+strings.Repeat("k", 1024)), want: "at most 1024 bytes"},
		"http alone":            {text: with("https://example.org/k", "http://example.org/k"), want: "kernel: an http url needs sha256 or signatureURL"},
		"a wrong checksum":      {text: with(`k"`, `k","sha256":"abc"`), want: `kernel: sha256 "abc" has to be`},
		"upper-case":            {text: with(`k"`, `k","sha256":"`+strings.Repeat("A", 64)+`"`), want: "64 lower-case"},
		"a wrong signature":     {text: with(`k"`, `k","signatureURL":"k.sig"`), want: `signatureURL "k.sig" has to be`},
		"an empty root":         {text: with(`}}`, `},"rootFS":{}}`), want: "rootFS: url is missing"},
		"an empty argument":     {text: with(`}}`, `},"kernelArguments":[""]}`), want: `kernel argument "" has to have`},
		"an argument of lines":  {text: with(`}}`, `},"kernelArguments":["a\nb"]}`), want: "no control characters"},
		"many arguments":        {text: with(`}}`, `},"kernelArguments":["a"`+strings.Repeat(`,"a"`, 64)+`]}`), want: "there are 65 kernel arguments"},
		"a foreign key":         {text: with(`}}`, `},"ignitionKey":"etc/config"}`), want: `ignitionKey "etc/config" has to begin with opt/`},
		"a long key":            {text: with(`}}`, `},"ignitionKey":"opt/`+strings.Repeat("a", 52)+`"}`), want: "at most 55 bytes"},
		"two mistakes at once":  {text: with(`}}`, `},"ignitionKey":"x","kernelArguments":[""]}`), want: "kernel argument \"\" has to have 1 to 512 bytes and no control characters\nignitionKey"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestErrorsOfParseKeepSecrets(t *testing.T) {
	for _, url := range []string{"https://u:hunter2@example.org/", "https://example.org/?t=hunter2", "https://u:hunter2@exa mple.org/k"} {
		if _, err := Parse([]byte(with("https://example.org/k", url))); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v", url, err)
		}
	}
}

func TestGetRefusesAnImageThatWasNotParsed(t *testing.T) {
	c, _ := newCache(t, t.TempDir())
	if _, err := c.Get(t.Context(), FlatcarFrom(FlatcarMirror, "stable", "../../etc")); err == nil || !strings.Contains(err.Error(), "name ") {
		t.Errorf("error %v", err)
	}
}

func TestFlatcar(t *testing.T) {
	image := func(base, name string) Image {
		signed := func(file string) File { return File{URL: base + file, SignatureURL: base + file + ".sig"} }
		return Image{
			Name: name, Kernel: signed("flatcar_production_pxe.vmlinuz"), Initrd: signed("flatcar_production_pxe_image.cpio.gz"),
			KernelArguments: []string{"flatcar.first_boot=1", "root=/dev/disk/by-id/virtio-rootfs", "rootflags=rw"},
			IgnitionKey:     "opt/org.flatcar-linux/config",
		}
	}
	for name, c := range map[string]struct{ got, want Image }{
		"from Flatcar": {
			got:  FlatcarFrom(FlatcarMirror, "stable", "4459.2.1"),
			want: image("https://stable.release.flatcar-linux.net/amd64-usr/4459.2.1/", "flatcar-stable-4459.2.1"),
		},
		"from a mirror": {
			got:  FlatcarFrom("http://mirror.example.org/flatcar/{channel}/{version}/", "beta", "4500.1.0"),
			want: image("http://mirror.example.org/flatcar/beta/4500.1.0/", "flatcar-beta-4500.1.0"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Error(diff)
			}
			if err := c.got.validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFilesOfFlatcarNeedASignature(t *testing.T) {
	const url = "https://stable.release.flatcar-linux.net/amd64-usr/1.2.3/k"
	for name, c := range map[string]struct {
		file File
		want string
	}{
		"one that nothing vouches for": {file: File{URL: url}, want: url + ".sig"},
		"one with a checksum":          {file: File{URL: url, SHA256: strings.Repeat("0", 64)}},
		"one with its own":             {file: File{URL: url, SignatureURL: "https://example.org/s"}, want: "https://example.org/s"},
		"one of another domain":        {file: File{URL: "https://flatcar-linux.net.example.org/k"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.file.signature(); got != c.want {
				t.Errorf("signature %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{smallest, with("https://example.org/k", "file:///k"), with(`}}`, `},"kernelArguments":["a"],"rootFS":{"url":"https://e/r"}}`), `{"name":null}`, "[]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		image, err := Parse(text)
		if err != nil {
			return
		}
		if strings.ContainsAny(image.Name, "/\x00") || strings.HasPrefix(image.Name, ".") {
			t.Errorf("name %q is no name of a directory", image.Name)
		}
		again, err := json.Marshal(image)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Parse(again)
		if err != nil || !reflect.DeepEqual(image, second) && len(image.KernelArguments) > 0 {
			t.Errorf("%+v is %+v after it was written and read again: %v", image, second, err)
		}
	})
}

func FuzzParseManifest(f *testing.F) {
	for _, text := range []string{
		`{"version":1,"files":{"kernel":{"sha256":"` + strings.Repeat("0a", 32) + `","size":1,"inode":2,"modified":3,"changed":4}}}`,
		`{"version":2}`, `{"version":1,"files":{"kernel":{"sha256":"../..","size":-1}}}`, `{`, `null`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseManifest(written)
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%+v is %+v after it was written and read again: %v", m, again, err)
		}
		for name, e := range m.Files {
			if len(e.SHA256) != 64 || e.Size < 0 {
				t.Errorf("entry %q: %+v", name, e)
			}
		}
	})
}
