package cloudconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/go-cmp/cmp"
	"github.com/vincent-petithory/dataurl"
)

// golden are the inputs whose boot data is kept in testdata. UPDATE=1 rewrites the files.
var golden = map[string]func() Params{
	"master": masterParams,
	"worker": workerParams,
	"emulated-master": func() Params {
		p := masterParams()
		p.Emulated = true
		return p
	},
	"master-of-three-with-proxy-mirrors-and-oidc": fullParams,
	"worker-with-host-volumes":                    volumesParams,
}

func TestBootDataIsAsRecorded(t *testing.T) {
	for name, params := range golden {
		t.Run(name, func(t *testing.T) {
			got := describe(t, mustRender(t, params()))
			path := filepath.Join("testdata", name+".golden")
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%s (UPDATE=1 writes it)", err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("boot data differs from %s (-recorded +rendered):\n%s", path, diff)
			}
		})
	}
}

func TestNoRecordIsLeftOver(t *testing.T) {
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".golden")
		if golden[name] == nil {
			t.Errorf("%s belongs to no test", path)
		}
	}
}

// describe returns boot data for human readers: what a guest gets, with the content of files decoded.
func describe(t *testing.T, data BootData) string {
	var b strings.Builder
	for _, half := range []struct {
		name   string
		config types.Config
	}{{"public", data.Public}, {"private", data.Private}} {
		fmt.Fprintf(&b, "######## %s, ignition %s\n", half.name, half.config.Ignition.Version)
		for _, u := range half.config.Passwd.Users {
			fmt.Fprintf(&b, "\n#### user %s, groups %v, shell %s, keys %q\n", u.Name, u.Groups, *u.Shell, u.SSHAuthorizedKeys)
		}
		for _, d := range half.config.Storage.Directories {
			fmt.Fprintf(&b, "\n#### directory %s %04o\n", d.Path, *d.Mode)
		}
		for _, f := range half.config.Storage.Files {
			fmt.Fprintf(&b, "\n#### file %s %04o\n%s", f.Path, *f.Mode, content(t, f))
		}
		for _, u := range half.config.Systemd.Units {
			fmt.Fprintf(&b, "\n#### unit %s%s\n", u.Name, flags(u))
			if u.Contents != nil {
				b.WriteString(*u.Contents)
			}
			for _, d := range u.Dropins {
				fmt.Fprintf(&b, "## drop-in %s\n%s", d.Name, *d.Contents)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func flags(u types.Unit) string {
	text := ""
	if u.Enabled != nil {
		text += fmt.Sprintf(" enabled=%t", *u.Enabled)
	}
	if u.Mask != nil {
		text += fmt.Sprintf(" masked=%t", *u.Mask)
	}
	return text
}

func mustRender(t *testing.T, p Params) BootData {
	t.Helper()
	data, err := Render(p)
	if err != nil {
		t.Fatalf("rendering: %s", err)
	}
	return data
}

// content returns what Ignition would write.
func content(t *testing.T, f types.File) string {
	t.Helper()
	u, err := dataurl.DecodeString(*f.Contents.Source)
	if err != nil {
		t.Fatalf("source of %s: %s", f.Path, err)
	}
	return string(u.Data)
}

// fileContent returns the content of one file of either half.
func fileContent(t *testing.T, data BootData, path string) string {
	t.Helper()
	all := slices.Concat(data.Public.Storage.Files, data.Private.Storage.Files)
	i := slices.IndexFunc(all, func(f types.File) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("there is no file %s", path)
	}
	return content(t, all[i])
}

func hasFile(c types.Config, path string) bool {
	return slices.ContainsFunc(c.Storage.Files, func(f types.File) bool { return f.Path == path })
}
