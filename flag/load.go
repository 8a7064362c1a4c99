package flag

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/giantswarm/microerror"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// invalidConfigError says that a configuration file is missing, malformed or holds something that is not a setting.
var invalidConfigError = &microerror.Error{Kind: "invalidConfigError"}

// extensions are the extensions of configuration files.
var extensions = []string{".yaml", ".yml", ".json"}

// Load fills the settings that were not given as flags. It reads them from the environment, then from the files that
// config.dirs and config.files name; otherwise they keep their defaults. Files that are named but not found, and keys
// that are no settings, are errors because a typo that is ignored runs clusters with unintended settings.
func Load(fs *pflag.FlagSet, environment func(string) (string, bool)) error {
	given := map[string]bool{}
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	dirs, err := fs.GetStringSlice(ConfigDirs)
	if err != nil {
		return microerror.Mask(err)
	}
	names, err := fs.GetStringSlice(ConfigFiles)
	if err != nil {
		return microerror.Mask(err)
	}
	for _, name := range names {
		if err := loadFile(fs, dirs, name, given); err != nil {
			return err
		}
	}
	return loadEnvironment(fs, environment, given)
}

func loadFile(fs *pflag.FlagSet, dirs []string, name string, given map[string]bool) error {
	path, data, err := find(dirs, name)
	if err != nil {
		return err
	}
	var content map[string]any
	if err := yaml.Unmarshal(data, &content); err != nil {
		return microerror.Maskf(invalidConfigError, "%s is not valid YAML: %s", path, err)
	}
	values := map[string]string{}
	flatten("", content, values)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		f := fs.Lookup(key)
		if f == nil || key == ConfigDirs || key == ConfigFiles {
			return microerror.Maskf(invalidConfigError, "%s holds the key %q, which is no setting; see kvm-operator daemon --help", path, key)
		}
		if given[f.Name] {
			continue
		}
		if err := set(fs, f, values[key]); err != nil {
			return microerror.Maskf(invalidConfigError, "%s: key %q: %s", path, key, err)
		}
	}
	return nil
}

func find(dirs []string, name string) (string, []byte, error) {
	for _, dir := range dirs {
		for _, extension := range extensions {
			path := filepath.Join(dir, name+extension)
			data, err := os.ReadFile(path)
			if err == nil {
				return path, data, nil
			}
			if !os.IsNotExist(err) {
				return "", nil, microerror.Maskf(invalidConfigError, "reading %s: %s", path, err)
			}
		}
	}
	return "", nil, microerror.Maskf(invalidConfigError, "no configuration file %s{%s} in %s", name, strings.Join(extensions, ","), strings.Join(dirs, ", "))
}

// flatten turns nested keys into dotted keys, and lists into comma-separated text.
func flatten(prefix string, value any, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for name, item := range v {
			flatten(strings.TrimPrefix(prefix+"."+name, "."), item, into)
		}
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, fmt.Sprint(item))
		}
		into[prefix] = strings.Join(items, ",")
	case nil:
		into[prefix] = ""
	default:
		into[prefix] = fmt.Sprint(v)
	}
}

func loadEnvironment(fs *pflag.FlagSet, environment func(string) (string, bool), given map[string]bool) error {
	var failed error
	fs.VisitAll(func(f *pflag.Flag) {
		variable, value, ok := lookup(f.Name, environment)
		if !ok || given[f.Name] || failed != nil {
			return
		}
		if err := set(fs, f, value); err != nil {
			failed = microerror.Maskf(invalidConfigError, "environment variable %s: %s", variable, err)
		}
	})
	return failed
}

// lookup finds the variable of a setting. It tries the original operator's older spelling last.
func lookup(name string, environment func(string) (string, bool)) (variable, value string, ok bool) {
	for _, spelling := range []string{name, strings.Replace(name, ".workload.", ".tenant.", 1)} {
		variable = strings.ToUpper(strings.ReplaceAll(spelling, ".", "_"))
		if value, ok = environment(variable); ok {
			break
		}
	}
	return variable, value, ok
}

// set replaces the value. It does not append to a list that was set before.
func set(fs *pflag.FlagSet, f *pflag.Flag, value string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		var items []string
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return list.Replace(items)
	}
	return fs.Set(f.Name, value)
}
