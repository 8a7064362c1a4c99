package cloudconfig

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pluginArchive is what the plugins' project publishes: an archive with one program per plugin, and texts.
func pluginArchive(t *testing.T, names ...string) []byte {
	t.Helper()
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	add := func(name string, mode int64, text string) {
		if err := files.WriteHeader(&tar.Header{Name: "./" + name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	add("LICENSE", 0o644, "Apache")
	for _, name := range names {
		add(name, 0o755, "downloaded "+name)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func TestPluginsThatTheImageLacksAreDownloaded(t *testing.T) {
	all := pluginArchive(t, append(slices.Clone(CNIPlugins), "tuning")...)
	sum := fmt.Sprintf("%x", sha256.Sum256(all))
	for name, test := range map[string]struct {
		image     []string // plugins that are there
		archive   []byte
		published string
		want      map[string]string // plugin → content
		requests  bool
		fails     bool
	}{
		"the image has none": {archive: all, published: sum + "  cni-plugins.tgz\n", requests: true, want: map[string]string{
			"bridge": "downloaded bridge", "host-local": "downloaded host-local", "loopback": "downloaded loopback", "portmap": "downloaded portmap",
			"tuning": "downloaded tuning",
		}},
		"the image has all": {image: CNIPlugins, want: map[string]string{
			"bridge": "own bridge", "host-local": "own host-local", "loopback": "own loopback", "portmap": "own portmap",
		}},
		"the image lacks one": {image: []string{"bridge", "host-local", "loopback"}, archive: all, published: sum, requests: true, want: map[string]string{
			"bridge": "own bridge", "host-local": "own host-local", "loopback": "own loopback", "portmap": "downloaded portmap",
			"tuning": "downloaded tuning",
		}},
		"another checksum is published": {archive: all, published: strings.Repeat("0", 64), requests: true, fails: true, want: map[string]string{}},
		"the archive lacks one": {
			archive: pluginArchive(t, "bridge"), published: fmt.Sprintf("%x", sha256.Sum256(pluginArchive(t, "bridge"))),
			requests: true, fails: true, want: map[string]string{"bridge": "downloaded bridge"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = true
				switch {
				case !strings.HasPrefix(r.URL.Path, "/cni/v"+CNIPluginsVersion+"/cni-plugins-linux-"):
					http.NotFound(w, r)
				case strings.HasSuffix(r.URL.Path, "-v"+CNIPluginsVersion+".tgz"):
					_, _ = w.Write(test.archive)
				case strings.HasSuffix(r.URL.Path, "-v"+CNIPluginsVersion+".tgz.sha256"):
					fmt.Fprint(w, test.published)
				}
			}))
			defer server.Close()
			dir := t.TempDir()
			write(t, dir, "bin/sleep", "#!/bin/sh\n", 0o755)
			for _, plugin := range test.image {
				write(t, dir, "cni/"+plugin, "own "+plugin, 0o755)
			}
			output, err := run(t, "download.sh", filepath.Join(dir, "bin"), []string{
				"BASE_URL=http://127.0.0.1:1", "VERSION=v0", "DIRECTORY=/nonexistent", "CNI_URL=" + server.URL + "/cni", "CNI_VERSION=v" + CNIPluginsVersion,
				"CNI_DIRECTORY=" + filepath.Join(dir, "cni"), "CNI_PLUGINS=" + strings.Join(CNIPlugins, " "),
			}, "cni-plugins")
			if (err != nil) != test.fails || asked != test.requests {
				t.Errorf("exit %v (want failure %t), requests %t (want %t): %s", err, test.fails, asked, test.requests, output)
			}
			have := map[string]string{}
			entries, _ := os.ReadDir(filepath.Join(dir, "cni"))
			for _, entry := range entries {
				content, err := os.ReadFile(filepath.Join(dir, "cni", entry.Name()))
				if err != nil {
					t.Fatalf("left behind: %s: %v", entry.Name(), err)
				}
				have[entry.Name()] = string(content)
			}
			if fmt.Sprint(have) != fmt.Sprint(test.want) {
				t.Errorf("the plugins are %v, want %v: %s", have, test.want, output)
			}
		})
	}
}

// TestDropinsOfInstancesHideNoneOfTheirTemplates: of several drop-ins with the same name systemd reads only the most
// specific one (systemd.unit(5)), which left a node without a source for its plugins.
func TestDropinsOfInstancesHideNoneOfTheirTemplates(t *testing.T) {
	units := mustRender(t, workerParams()).Public.Systemd.Units
	names := map[string][]string{}
	for _, u := range units {
		for _, d := range u.Dropins {
			names[u.Name] = append(names[u.Name], d.Name)
		}
	}
	instances := 0
	for unit, own := range names {
		prefix, rest, isInstance := strings.Cut(unit, "@")
		if _, suffix, _ := strings.Cut(rest, "."); isInstance && rest != "."+suffix {
			instances++
			for _, name := range own {
				if slices.Contains(names[prefix+"@."+suffix], name) {
					t.Errorf("drop-in %s of %s hides that of its template", name, unit)
				}
			}
		}
	}
	if instances == 0 {
		t.Error("there is no instance with a drop-in: the test checks nothing")
	}
}
