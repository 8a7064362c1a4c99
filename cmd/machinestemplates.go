package cmd

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Limits of a template, which are those of a Machine.
const (
	mostCores, mostThreads, mostSockets = 256, 8, 16
	mostDisks                           = 32
)

// fileTemplate is a template in the file of templates. Its fields are written as in a Machine.
type fileTemplate struct {
	CPU    v1alpha1.CPU    `json:"cpu,omitempty"`
	Memory v1alpha1.Memory `json:"memory"`
	Disks  []v1alpha1.Disk `json:"disks"`
}

// parseTemplates reads a file of templates: YAML with the templates by name. Fields that do not exist are errors, because
// a template with a misspelled field would make Machines of another size.
func parseTemplates(text []byte) (map[string]vitistack.Template, error) {
	var file map[string]fileTemplate
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("has to be YAML with templates by name: %w", err)
	}
	templates := map[string]vitistack.Template{}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		template, err := file[name].template(name)
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", name, err)
		}
		templates[name] = template
	}
	return templates, nil
}

func (f fileTemplate) template(name string) (vitistack.Template, error) {
	t := vitistack.Template{CPU: f.CPU, Memory: f.Memory.Size, Disks: slices.Clone(f.Disks)}
	_, builtIn := vitistack.BuiltIn()[name]
	switch {
	case builtIn: // its size is part of the API
		return t, fmt.Errorf("is built in and cannot be changed; choose another name")
	case !isLabel(name):
		return t, fmt.Errorf("a name has small letters, digits and '-', at most 63, with a letter or digit at both ends")
	case len(f.Disks) == 0 || len(f.Disks) > mostDisks:
		return t, fmt.Errorf("there are %d disks and have to be 1 to %d", len(f.Disks), mostDisks)
	}
	for _, number := range []struct {
		name  string
		value *int32
		most  int32
	}{{"cpu.cores", &t.CPU.Cores, mostCores}, {"cpu.threads", &t.CPU.Threads, mostThreads}, {"cpu.sockets", &t.CPU.Sockets, mostSockets}} {
		if *number.value == 0 {
			*number.value = 1
		}
		if *number.value < 1 || *number.value > number.most {
			return t, fmt.Errorf("%s is %d and has to be 1 to %d", number.name, *number.value, number.most)
		}
	}
	if err := size("memory.size", f.Memory.Size); err != nil {
		return t, err
	}
	return t, checkDisks(t.Disks)
}

// checkDisks names the first disk root if it has no name, as the API does.
func checkDisks(disks []v1alpha1.Disk) error {
	seen := map[string]bool{}
	for i := range disks {
		d := &disks[i]
		if d.Name == "" {
			d.Name = "root"
		}
		switch {
		case !isLabel(d.Name):
			return fmt.Errorf("disks: the name %q has to have small letters, digits and '-'", d.Name)
		case seen[d.Name]:
			return fmt.Errorf("disks: there are two of the name %s", d.Name)
		case d.AccessMode != "" && !slices.Contains(accessModes, d.AccessMode):
			return fmt.Errorf("disk %s: accessMode is %q and has to be one of ReadWriteOnce, ReadWriteMany, ReadOnlyMany", d.Name, d.AccessMode)
		case d.VolumeMode != "" && !slices.Contains(volumeModes, d.VolumeMode):
			return fmt.Errorf("disk %s: volumeMode is %q and has to be Filesystem or Block", d.Name, d.VolumeMode)
		case !urlsMatch(d.Source):
			return fmt.Errorf("disk %s: source.http.url has to be an http:// or https:// URL and source.registry.url docker:// with the reference of an image, both without user name and password", d.Name)
		case d.StorageClass != "" && !isDomain(d.StorageClass):
			return fmt.Errorf("disk %s: storageClass is %q and has to be the name of a StorageClass", d.Name, d.StorageClass)
		}
		seen[d.Name] = true
		if d.Source != nil && d.Source.ContainerDisk != nil {
			continue // it has the size of its image
		}
		if err := size("disk "+d.Name+": size", d.Size); err != nil {
			return err
		}
	}
	return nil
}

// The URLs that the API of Machines accepts.
var (
	httpURL     = regexp.MustCompile(`^https?://[A-Za-z0-9._:%[-]+[]]?(:[0-9]+)?([/?][[:graph:]]*)?$`)
	registryURL = regexp.MustCompile(`^docker://[A-Za-z0-9._-]+(:[0-9]+)?(/[A-Za-z0-9._-]+)+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?$`)
)

// urlsMatch returns whether the URLs of a source, which may be nil, are such.
func urlsMatch(s *v1alpha1.DiskSource) bool {
	return s == nil || (s.HTTP == nil || httpURL.MatchString(s.HTTP.URL)) && (s.Registry == nil || registryURL.MatchString(s.Registry.URL))
}

func size(what string, q v1alpha1.Quantity) error {
	parsed, err := q.Parse()
	if err != nil || parsed.Sign() <= 0 {
		return fmt.Errorf("%s is %q and has to be a quantity of more than zero, such as 16Gi", what, q)
	}
	return nil
}
