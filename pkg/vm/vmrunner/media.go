package vmrunner

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kvm-operator/kvm-operator/pkg/vm/jail"
)

// whereabouts is where a medium is.
type whereabouts int

const (
	nowhere whereabouts = iota
	inNetwork
	inRepository
)

// place returns where a medium is: a URL of http or https, a file below the image repository, or nothing. Everything
// else is refused, because QEMU has drivers that open any file of the container.
func place(text string) (whereabouts, error) {
	if text == "" {
		return nowhere, nil
	}
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		parsed, err := url.Parse(text)
		if err != nil || parsed.Hostname() == "" {
			return nowhere, fmt.Errorf("%q is no URL with a host", text)
		}
		return inNetwork, nil
	}
	if strings.Contains(text, "://") || !filepath.IsLocal(text) {
		return nowhere, fmt.Errorf("%q is neither a URL of http or https nor the name of a file in the image repository", text)
	}
	return inRepository, nil
}

// openImage opens a file below a directory. A link may lead to another file there, and to none outside.
func openImage(directory, name string) (file *os.File, err error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("opening the image repository: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// Opening a device may have an effect, so its type is checked first.
	info, err := root.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w: put the file into the image repository %s, or empty the drive", err, directory)
	}
	if err := regular(info, name); err != nil {
		return nil, err
	}
	if file, err = root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err == nil {
		err = regular(info, name)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func regular(info fs.FileInfo, name string) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s in the image repository is no regular file", name)
	}
	return nil
}

// certificates are where distributions keep the authorities that QEMU trusts for https.
var certificates = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

func (p *preparation) showCertificates() {
	for _, path := range certificates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			p.Jail.Paths = append(p.Jail.Paths, jail.Path{Name: path})
			return
		}
	}
}
