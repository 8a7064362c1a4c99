package cloudconfig

import (
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_3/types"
)

// Modes of files.
const (
	modePublic     = 0o644
	modeSecret     = 0o600
	modeExecutable = 0o755
	// modeDirectory is that of directories of Kubernetes: only root reads them, and many files are secret.
	modeDirectory = 0o700
)

// parts is what one builder adds to a config.
type parts struct {
	directories []string
	files       []file
	users       []types.PasswdUser
	units       []types.Unit
}

// file is a file of the guest, owned by root.
type file struct {
	path string
	mode int
	// text is the content; if object is set, the content is the object as YAML.
	text   string
	object any
	// private files go to the Secret.
	private bool
}

func (p *parts) add(other parts) {
	p.directories = append(p.directories, other.directories...)
	p.files = append(p.files, other.files...)
	p.users = append(p.users, other.users...)
	p.units = append(p.units, other.units...)
}

// public returns the half for the ConfigMap.
func (p parts) public() (types.Config, error) {
	config, err := p.half(false)
	if err != nil {
		return types.Config{}, err
	}
	config.Passwd.Users = p.users
	config.Systemd.Units = p.units
	for _, path := range p.directories {
		config.Storage.Directories = append(config.Storage.Directories, types.Directory{
			Node:               types.Node{Path: path},
			DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: new(modeDirectory)},
		})
	}
	return config, nil
}

// private returns the half for the Secret. It contains only files.
func (p parts) private() (types.Config, error) { return p.half(true) }

func (p parts) half(private bool) (types.Config, error) {
	config := types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
	for _, f := range p.files {
		if f.private != private {
			continue
		}
		text, err := f.content()
		if err != nil {
			return types.Config{}, fmt.Errorf("rendering %s: %w", f.path, err)
		}
		config.Storage.Files = append(config.Storage.Files, types.File{
			// Ignition runs on every boot and refuses to touch an existing file unless told to.
			Node: types.Node{Path: f.path, Overwrite: new(true)},
			FileEmbedded1: types.FileEmbedded1{
				Mode: new(f.mode),
				// It is percent-encoded, not base64, so that the text stays compressible, and readable for people.
				Contents: types.Resource{Source: new("data:," + escape(text))},
			},
		})
	}
	return config, nil
}

func (f file) content() (string, error) {
	if f.object == nil {
		return f.text, nil
	}
	return toYAML(f.object)
}

// service returns an enabled unit with the given content.
func service(name, content string) types.Unit {
	return types.Unit{Name: name, Enabled: new(true), Contents: new(content)}
}

// template returns a unit that others pull in; it is not enabled by itself.
func template(name, content string) types.Unit {
	return types.Unit{Name: name, Contents: new(content)}
}

// dropin extends a unit of the operating system and enables it.
func dropin(name, content string) types.Unit {
	return types.Unit{Name: name, Enabled: new(true), Dropins: []types.Dropin{{Name: "10-kvm-operator.conf", Contents: new(content)}}}
}
