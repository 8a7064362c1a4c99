package flag_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/flag"
)

// TestMistakesAreOneSentence: the sentence names the file and the key.
func TestMistakesAreOneSentence(t *testing.T) {
	config := []string{"--config.files=config"}
	for name, test := range map[string]struct {
		files       map[string]string
		args        []string
		environment map[string]string
		// want is the start of the message. DIR stands for the directory of the test.
		want string
	}{
		"a file that is missing": {
			args: config,
			want: "no configuration file config{.yaml,.yml,.json} in DIR/a, DIR/b",
		},
		"a key that is no setting": {
			files: map[string]string{"a/config.yml": "service: {registry: {domian: x}}"}, args: config,
			want: `DIR/a/config.yml holds the key "service.registry.domian", which is no setting; see kvm-operator daemon --help`,
		},
		"text where keys should be": {
			files: map[string]string{"a/config.yml": "service: {registry: x}"}, args: config,
			want: `DIR/a/config.yml holds the key "service.registry", which is no setting; see kvm-operator daemon --help`,
		},
		"keys where text should be": {
			files: map[string]string{"a/config.yml": "service: {registry: {domain: {name: x}}}"}, args: config,
			want: `DIR/a/config.yml holds the key "service.registry.domain.name", which is no setting; see kvm-operator daemon --help`,
		},
		"files that name files": {
			files: map[string]string{"a/config.yml": "config: {files: [x]}"}, args: config,
			want: `DIR/a/config.yml holds the key "config.files", which is no setting; see kvm-operator daemon --help`,
		},
		"a value of the wrong kind": {
			files: map[string]string{"a/config.yml": "service: {terminateUnhealthyNodes: maybe}"}, args: config,
			want: `DIR/a/config.yml: key "service.terminateUnhealthyNodes": `,
		},
		"a file that is no YAML": {
			files: map[string]string{"a/config.yml": "service: [\n"}, args: config,
			want: "DIR/a/config.yml is not valid YAML: ",
		},
		"a file that is a list": {
			files: map[string]string{"a/config.yml": "- a\n"}, args: config,
			want: "DIR/a/config.yml is not valid YAML: ",
		},
		"a directory in place of a file": {
			files: map[string]string{"a/config.yaml/x": ""}, args: config,
			want: "reading DIR/a/config.yaml: ",
		},
		"a variable of the wrong kind": {
			environment: map[string]string{"SERVICE_TERMINATEUNHEALTHYNODES": "maybe"},
			want:        "environment variable SERVICE_TERMINATEUNHEALTHYNODES: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs, dir := setup(t, test.files, test.args...)
			err := flag.Load(fs, environment(test.environment))
			if err == nil {
				t.Fatal("there is no error")
			}
			got, is := strings.CutPrefix(strings.ReplaceAll(err.Error(), dir, "DIR"), "invalid config error: ")
			if !is {
				t.Errorf("it is not recognised as a mistake in the configuration: %v", err)
			}
			if !strings.HasPrefix(got, test.want) {
				t.Errorf("it begins otherwise (-want +got):\n%s", cmp.Diff(test.want, got))
			}
			if strings.Contains(got, "\n") {
				t.Errorf("it is more than one line: %q", got)
			}
		})
	}
}
