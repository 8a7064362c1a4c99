package bootdata_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_3/types"
	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

const (
	public  = `{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/etc/public","contents":{"source":"data:,public"}}]}}`
	private = `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/private","contents":{"source":"data:,private"}}]}}`
)

func TestMerge(t *testing.T) {
	host := bootdata.Host{Files: []bootdata.File{{Path: "/etc/hostname", Content: "worker-1\n"}}}
	got, err := bootdata.Merge(host, []byte(public), []byte(private))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
  "ignition": {
    "config": {
      "merge": [
        {"source": "data:application/json;base64,` + `PUBLIC"},
        {"source": "data:application/json;base64,` + `PRIVATE"}
      ]
    },
    "version": "3.3.0"
  },
  "storage": {
    "files": [
      {"contents": {"source": "data:text/plain;charset=utf-8;base64,d29ya2VyLTEK"}, "mode": 420, "overwrite": true, "path": "/etc/hostname"}
    ]
  }
}`
	expected := strings.NewReplacer("PUBLIC", encode(public), "PRIVATE", encode(private)).Replace(want)
	if diff := cmp.Diff(config(t, []byte(expected)), config(t, got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMergeRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		halves []string
		want   string
	}{
		"what is not JSON":              {[]string{"#cloud-config"}, "no valid Ignition config"},
		"a version that does not exist": {[]string{`{"ignition":{"version":"9.0.0"}}`}, "no valid Ignition config"},
		"a version before 3":            {[]string{`{"ignition":{"version":"2.2.0"}}`}, "no valid Ignition config"},
		"a relative path": {
			[]string{`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"etc/x"}]}}`}, "path not absolute",
		},
		"halves of which one makes a link where the other needs a directory": {
			[]string{public, `{"ignition":{"version":"3.3.0"},"storage":{"links":[{"path":"/etc","target":"/x"}]}}`}, "contradict each other",
		},
		"halves of which one makes a file where the other needs a directory": {
			[]string{
				`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/a/b"}]}}`,
				`{"ignition":{"version":"3.3.0"},"storage":{"files":[{"path":"/a/b/c/d"}]}}`,
			}, "contradict each other: /a/b is a file, and /a/b/c/d lies below it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var halves [][]byte
			for _, half := range test.halves {
				halves = append(halves, []byte(half))
			}
			got, err := bootdata.Merge(bootdata.Host{}, halves...)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %s, %v; want an error of one line with %q", got, err, test.want)
			}
		})
	}
}

// FuzzMerge: what Merge accepts can be merged again, and it never panics, whatever a half contains.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(public))
	f.Add([]byte(private))
	f.Add([]byte(`{"ignition":{"version":"3.0.0","config":{"replace":{"source":"data:,"}}}}`))
	f.Fuzz(func(t *testing.T, half []byte) {
		merged, err := bootdata.Merge(bootdata.Host{}, half)
		if err != nil {
			return
		}
		if _, err := bootdata.Merge(bootdata.Host{}, merged); err != nil {
			t.Errorf("%s was merged to %s, which is refused: %v", half, merged, err)
		}
	})
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func config(t *testing.T, raw []byte) types.Config {
	t.Helper()
	c, report, err := v3_3.Parse(raw)
	if err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	return c
}
