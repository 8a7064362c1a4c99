package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

const goldenDirectory = "testdata/golden"

func scenarios(t *testing.T) map[string]scenario {
	t.Helper()
	return map[string]scenario{"1master-1worker": simple(), "3masters-5workers": full(), "minimal-old-manifest": oldManifest(t)}
}

// TestEveryObjectIsAsRecorded compares the objects with the golden files testdata/golden/<scenario>/<handler>. UPDATE=1
// rewrites them.
func TestEveryObjectIsAsRecorded(t *testing.T) {
	got := map[string]string{}
	for name, s := range scenarios(t) {
		for path, text := range files(t, s.render(t)) {
			got[filepath.Join(name, path)] = text
		}
	}
	for path, text := range files(t, restoring(t)) {
		got[filepath.Join("restore", path)] = text
	}
	if os.Getenv("UPDATE") != "" {
		rewrite(t, got)
	}
	recorded := readGolden(t)
	for _, path := range slices.Sorted(maps.Keys(got)) {
		want, ok := recorded[path]
		if diff := cmp.Diff(want, got[path]); diff != "" {
			t.Errorf("%s (recorded: %t, UPDATE=1 writes it) is rendered otherwise (-recorded +rendered):\n%s", path, ok, diff)
		}
		delete(recorded, path)
	}
	for _, path := range slices.Sorted(maps.Keys(recorded)) {
		t.Errorf("%s is left over: nothing is rendered to it", path)
	}
}

// files returns the objects as text by path, with decoded boot data in separate files.
func files(t *testing.T, rendered []Rendered) map[string]string {
	t.Helper()
	texts := map[string]string{}
	add := func(path, text string) {
		if _, twice := texts[path]; twice {
			t.Errorf("%s is rendered twice", path)
		}
		texts[path] = text
	}
	for _, r := range rendered {
		for _, object := range r.Objects {
			gvk, err := apiutil.GVKForObject(object, scheme.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(r.Handler, gvk.Kind+"-"+object.GetName())
			object = object.DeepCopyObject().(client.Object)
			object.GetObjectKind().SetGroupVersionKind(gvk)
			if data := takeBootData(object); data != "" {
				add(path+"."+nodepod.UserData+".json", decode(t, data))
			}
			add(path+".yaml", toYAML(t, object))
		}
	}
	return texts
}

// takeBootData removes boot data from an object and returns it, because it is compressed.
func takeBootData(object client.Object) string {
	switch o := object.(type) {
	case *corev1.ConfigMap:
		data := o.Data[nodepod.UserData]
		delete(o.Data, nodepod.UserData)
		return data
	case *corev1.Secret:
		data := string(o.Data[nodepod.UserData])
		delete(o.Data, nodepod.UserData)
		return data
	}
	return ""
}

func decode(t *testing.T, data string) string {
	t.Helper()
	text, err := bootdata.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(pretty.String()) + "\n"
}

var encoded = regexp.MustCompile(`[A-Za-z0-9+/]{12,}={0,2}`)

// decodedURLs appends to a text what it contains in base64: data of Secrets, data URLs of boot data and certificates in
// kubeconfigs, which are base64 in base64.
func decodedURLs(text string) string {
	text, all := plain(text), text
	for range 3 {
		next := ""
		for _, found := range encoded.FindAllString(text, -1) {
			if raw, err := base64.StdEncoding.DecodeString(found); err == nil {
				next += plain(string(raw)) + "\n"
			}
		}
		all += "\n" + text
		text = next
	}
	return all + text
}

// plain removes the URL escapes of a text.
func plain(text string) string {
	if unescaped, err := url.PathUnescape(text); err == nil {
		return unescaped
	}
	return text
}

func toYAML(t *testing.T, object client.Object) string {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	delete(content, "status")
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readGolden(t *testing.T) map[string]string {
	t.Helper()
	recorded := map[string]string{}
	err := filepath.WalkDir(goldenDirectory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		recorded[strings.TrimPrefix(path, goldenDirectory+"/")] = string(text)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return recorded
}

func rewrite(t *testing.T, texts map[string]string) {
	t.Helper()
	if err := os.RemoveAll(goldenDirectory); err != nil {
		t.Fatal(err)
	}
	for path, text := range texts {
		path = filepath.Join(goldenDirectory, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
