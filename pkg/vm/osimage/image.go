// Package osimage keeps operating system images in a directory that all node pods of a host share: downloaded once,
// verified, repaired when damaged, and pruned when unused.
package osimage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// Limits of the API, in bytes except for the number of arguments.
const (
	maxName        = 63
	maxURL         = 1024
	maxArguments   = 64
	maxArgument    = 512
	maxIgnitionKey = 55 // QEMU: docs/specs/fw_cfg
)

var (
	namePattern        = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	sumPattern         = regexp.MustCompile(`^[0-9a-f]{64}$`)
	ignitionKeyPattern = regexp.MustCompile(`^opt/[A-Za-z0-9._/-]+$`)
)

// Image is a kernel, an initrd and, optionally, a root file system. Its JSON is that of spec.guestImage of a KVMConfig.
type Image struct {
	// Name identifies the image for people and in the cache's directory; lower-case letters, digits, '-' and '.'.
	Name string `json:"name"`
	// Kernel is the Linux kernel.
	Kernel File `json:"kernel"`
	// Initrd is the initial RAM disk; it may contain the whole system.
	Initrd File `json:"initrd"`
	// RootFS is a disk, if set.
	RootFS *File `json:"rootFS,omitempty"`
	// KernelArguments are appended to the kernel's command line.
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// IgnitionKey is the fw_cfg name under which the image looks for its configuration.
	IgnitionKey string `json:"ignitionKey,omitempty"`
}

// File is one file of an image.
type File struct {
	// URL is an http, https or file URL. A file on the host is used where it is and never changed.
	URL string `json:"url"`
	// SHA256 is the expected checksum, 64 lower-case hexadecimal digits.
	SHA256 string `json:"sha256,omitempty"`
	// SignatureURL is that of a detached OpenPGP signature, binary or armored.
	SignatureURL string `json:"signatureURL,omitempty"`
}

// Parse parses an image from JSON. It rejects unknown fields. Every error says which field is wrong and what would be
// right.
func Parse(text []byte) (Image, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var image Image
	if err := decoder.Decode(&image); err != nil {
		return Image{}, fmt.Errorf("reading the description of the image: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Image{}, errors.New("reading the description of the image: there is something behind its end")
	}
	if err := image.validate(); err != nil {
		return Image{}, err
	}
	return image, nil
}

// part is one of an image's files with its name in the cache.
type part struct {
	name string
	file File
}

func (i Image) parts() []part {
	parts := []part{{"kernel", i.Kernel}, {"initrd", i.Initrd}}
	if i.RootFS != nil {
		parts = append(parts, part{"rootFS", *i.RootFS})
	}
	return parts
}

// validate reports everything that is wrong at once.
func (i Image) validate() error {
	var errs []error
	require := func(ok bool, text string, arguments ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, arguments...))
		}
	}
	require(len(i.Name) <= maxName && namePattern.MatchString(i.Name),
		"name %q has to be at most %d lower-case letters, digits, '-' and '.' with a letter or digit at both ends", i.Name, maxName)
	for _, p := range i.parts() {
		if err := p.file.validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	require(len(i.KernelArguments) <= maxArguments, "there are %d kernel arguments; %d are allowed", len(i.KernelArguments), maxArguments)
	for _, argument := range i.KernelArguments {
		require(argument != "" && len(argument) <= maxArgument && !strings.ContainsFunc(argument, unicode.IsControl),
			"kernel argument %q has to have 1 to %d bytes and no control characters", argument, maxArgument)
	}
	require(i.IgnitionKey == "" || len(i.IgnitionKey) <= maxIgnitionKey && ignitionKeyPattern.MatchString(i.IgnitionKey),
		"ignitionKey %q has to begin with opt/, such as opt/com.coreos/config, and have at most %d bytes", i.IgnitionKey, maxIgnitionKey)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

func (f File) validate() error {
	location, err := parseURL("url", f.URL)
	if err != nil {
		return err
	}
	if f.SHA256 != "" && !sumPattern.MatchString(f.SHA256) {
		return fmt.Errorf("sha256 %q has to be 64 lower-case hexadecimal digits", f.SHA256)
	}
	if f.SignatureURL != "" {
		if _, err := parseURL("signatureURL", f.SignatureURL); err != nil {
			return err
		}
	}
	// A man in the middle could give every node a kernel of their choice.
	if location.Scheme == "http" && !f.verifiable() {
		return errors.New("an http url needs sha256 or signatureURL; nothing else would tell that the file is the right one")
	}
	return nil
}

// verifiable reports whether a wrong file can be distinguished from the right one.
func (f File) verifiable() bool { return f.SHA256 != "" || f.signature() != "" }

// signature returns the URL of the file's signature. A file of Flatcar without any other verification must have one.
func (f File) signature() string {
	if f.SignatureURL == "" && f.SHA256 == "" && isFlatcar(f.URL) {
		return f.URL + ".sig"
	}
	return f.SignatureURL
}

func parseURL(field, text string) (*url.URL, error) {
	if text == "" {
		return nil, fmt.Errorf("%s is missing", field)
	}
	location, err := url.Parse(text)
	// The text of err repeats the URL, which may contain a password.
	if err != nil || len(text) > maxURL || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return nil, fmt.Errorf("%s is no URL of at most %d bytes", field, maxURL)
	}
	ok := false
	switch location.Scheme {
	case "http", "https":
		ok = location.Host != "" && len(location.Path) > 1
	case "file":
		ok = location.Host == "" && path.IsAbs(location.Path) && path.Clean(location.Path) == location.Path && location.Path != "/"
	}
	if !ok || location.Opaque != "" {
		return nil, fmt.Errorf("%s %q has to be an http, https or file URL of a file, such as https://images.example.org/vmlinuz", field, show(text))
	}
	return location, nil
}

// localPath returns the path of a file URL, "" for others. The URL is valid.
func localPath(text string) string {
	if location, err := url.Parse(text); err == nil && location.Scheme == "file" {
		return location.Path
	}
	return ""
}

// show returns a URL without its possibly secret parts: credentials and query.
func show(text string) string {
	location, err := url.Parse(text)
	if err != nil {
		return "a URL that cannot be read"
	}
	return (&url.URL{Scheme: location.Scheme, Host: location.Host, Path: location.Path}).String()
}
