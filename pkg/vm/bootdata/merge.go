package bootdata

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_3/types"
	latest "github.com/coreos/ignition/v2/config/v3_6"
	latesttypes "github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/vincent-petithory/dataurl"
)

// Host is what only the runner knows of a machine.
type Host struct {
	// Files are written to the guest. If a half has a file of the same path, that file wins, because Ignition merges
	// the configs that a config names over the config itself.
	Files []File
}

// File is one file of the guest, owned by root, mode 0644.
type File struct {
	// Path is absolute.
	Path string
	// Content is the complete content.
	Content string
}

// Merge returns the Ignition config (JSON, spec version 3.3.0) that merges the halves, each a config of a version up to
// 3.6, in their order, and adds what host contains. It rejects what Ignition would reject in the guest, where the
// reason would not be seen: an invalid half, and halves that contradict each other.
func Merge(host Host, halves ...[]byte) ([]byte, error) {
	config := host.config()
	merged := latesttypes.Config{}
	for _, half := range halves {
		parsed, err := parse(half)
		if err != nil {
			return nil, err
		}
		merged = latest.Merge(merged, parsed)
		source := dataurl.New(half, "application/json").String()
		config.Ignition.Config.Merge = append(config.Ignition.Config.Merge, types.Resource{Source: &source})
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the merged boot data: %w", err)
	}
	own, err := parse(raw)
	if err != nil {
		return nil, err
	}
	whole := latest.Merge(own, merged)
	if report := validate.ValidateWithContext(whole, nil); report.IsFatal() {
		return nil, fmt.Errorf("the halves of the boot data contradict each other: %s", oneLine(report.String()))
	}
	if file, below := fileAsDirectory(whole); file != "" {
		return nil, fmt.Errorf("the halves of the boot data contradict each other: %s is a file, and %s lies below it", file, below)
	}
	return raw, nil
}

// fileAsDirectory finds a file and something that is to be written below it: Ignition checks that within a config, but
// not across merged ones (https://github.com/coreos/ignition/issues/1457).
func fileAsDirectory(c latesttypes.Config) (file, below string) {
	files, all := map[string]bool{}, []string{}
	for _, f := range c.Storage.Files {
		files[path.Clean(f.Path)] = true
		all = append(all, f.Path)
	}
	for _, d := range c.Storage.Directories {
		all = append(all, d.Path)
	}
	for _, l := range c.Storage.Links {
		all = append(all, l.Path)
	}
	for _, p := range all {
		for parent := path.Dir(path.Clean(p)); parent != "/" && parent != "."; parent = path.Dir(parent) {
			if files[parent] {
				return parent, p
			}
		}
	}
	return "", ""
}

// parse parses and validates one config.
func parse(raw []byte) (latesttypes.Config, error) {
	config, report, err := latest.ParseCompatibleVersion(raw)
	if err != nil {
		return latesttypes.Config{}, fmt.Errorf("boot data is no valid Ignition config: %s", oneLine(err.Error()+"\n"+report.String()))
	}
	return config, nil
}

func (h Host) config() types.Config {
	config := types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
	overwrite, mode := true, 0o644
	for _, f := range h.Files {
		source := dataurl.EncodeBytes([]byte(f.Content))
		config.Storage.Files = append(config.Storage.Files, types.File{
			Node:          types.Node{Path: f.Path, Overwrite: &overwrite},
			FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: &source}, Mode: &mode},
		})
	}
	return config
}

// oneLine joins the lines of a report, because it is used in a log line and in a termination message.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), "; ")
}
