package microvm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/egress"
)

// Spec is what is decided at the creation of a machine and never changes.
type Spec struct {
	// CPUs and MemoryMB are 0 for those of the artifact.
	CPUs     int   `json:"cpus"`
	MemoryMB int64 `json:"memoryMb"`
	// Image or From are what the machine is made of: a container image, or the path of an artifact.
	Image      string       `json:"image"`
	From       string       `json:"from,omitempty"`
	Entrypoint []string     `json:"entrypoint,omitempty"`
	Cmd        []string     `json:"cmd,omitempty"`
	Env        []api.EnvVar `json:"env,omitempty"`
	Workdir    string       `json:"workdir,omitempty"`
	Network    bool         `json:"network"`
	// AllowedCIDRs are in canonical form. Nil: all.
	AllowedCIDRs *[]string   `json:"allowedCidrs,omitempty"`
	Ports        []api.Port  `json:"ports,omitempty"`
	Restart      api.Restart `json:"restart"`
}

// Bounds of a machine. QEMU's q35 with ACPI has at most 255 processors without further settings.
const (
	maxCPUs     = 255
	minMemoryMB = 64
	maxMemoryMB = 64 << 20
	// maxDiskGB is that of a file on ext4.
	maxDiskGB = 16 << 10
	maxPorts  = 128
	// maxText bounds what ends in the guest's configuration, in bytes, and maxTexts in how many parts.
	maxText  = 256 << 10
	maxTexts = 4096
	// maxImage is longer than a reference can be, and maxOwner than a name or UID of Kubernetes, in bytes.
	maxImage = 1024
	maxOwner = 253
)

// Hash is the SHA-256 of the spec. The order of ports and networks does not matter.
func (s Spec) Hash() string {
	s.Ports = slices.Clone(s.Ports)
	slices.SortFunc(s.Ports, func(a, b api.Port) int { return cmp.Compare(a.Host, b.Host) })
	if s.AllowedCIDRs != nil {
		sorted := slices.Sorted(slices.Values(*s.AllowedCIDRs))
		s.AllowedCIDRs = &sorted
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// sizes are those of the two disks, in GiB.
type sizes struct {
	StorageGB int64 `json:"storageGb"`
	OverlayGB int64 `json:"overlayGb"`
}

// specOf checks a request and fills in defaults. The error names everything that is wrong.
func specOf(r api.CreateRequest, published PortRanges) (Spec, sizes, error) {
	s := Spec{
		CPUs: or(r.CPUs, api.DefaultCPUs), MemoryMB: or(r.MemoryMB, api.DefaultMemoryMB),
		Image: r.Image, From: r.From, Entrypoint: r.Entrypoint, Cmd: r.Cmd, Env: r.Env, Workdir: r.Workdir, Network: r.Network, Ports: r.Ports,
		Restart: api.Restart{Policy: api.RestartNever},
	}
	if r.Restart != nil {
		s.Restart = *r.Restart
	}
	d := sizes{StorageGB: or(r.StorageGB, api.DefaultStorageGB), OverlayGB: or(r.OverlayGB, api.DefaultOverlayGB)}
	var allowed error
	s.AllowedCIDRs, allowed = canonical(r.AllowedCIDRs)
	err := errors.Join(checkUnsupported(r), checkNever(r), s.checkSource(), s.checkSize(), d.check(), s.checkProcess(), s.checkPorts(), published.check(s.Ports), s.checkRestart(), checkHash(r.SpecHash), checkOwner(r.Owner), allowed)
	if err != nil {
		return Spec{}, sizes{}, api.Errorf(codeOf(err), "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return s.leave(r), d, nil
}

// leave leaves to the artifact what the request does not say.
func (s Spec) leave(r api.CreateRequest) Spec {
	if s.From != "" && r.CPUs == nil {
		s.CPUs = 0
	}
	if s.From != "" && r.MemoryMB == nil {
		s.MemoryMB = 0
	}
	return s
}

// codeOf tells a request that is wrong from one that other servers would grant.
func codeOf(err error) api.Code {
	if errors.Is(err, errUnsupported) || errors.Is(err, errClosed) {
		return api.CodeUnsupported
	}
	return api.CodeBadRequest
}

func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

var errUnsupported = errors.New("this server runs machines with QEMU and does not support it")

// checkUnsupported refuses what must not be ignored.
func checkUnsupported(r api.CreateRequest) error {
	var errs []error
	for _, c := range []struct {
		name string
		used bool
	}{
		{"registryRef", r.RegistryRef != "" || r.RegistryIDToken != ""},
		{"mounts", len(r.Mounts) > 0},
		{"allowedHosts", r.AllowedHosts != nil},
		{"gpu", r.GPU}, {"cuda", r.CUDA}, {"autoGraph", r.AutoGraph}, {"dockerSocket", r.DockerSocket},
	} {
		if c.used {
			errs = append(errs, fmt.Errorf("%s: %w", c.name, errUnsupported))
		}
	}
	return errors.Join(errs...)
}

// checkNever refuses what smolvm refuses, too, or accepts in part only.
func checkNever(r api.CreateRequest) error {
	var errs []error
	if r.NetworkBackend != "" && r.NetworkBackend != "virtio-net" {
		errs = append(errs, fmt.Errorf("networkBackend is %q, and this server knows only virtio-net", r.NetworkBackend))
	}
	if len(r.Secrets) > 0 {
		errs = append(errs, errors.New("secrets cannot be given over HTTP"))
	}
	if r.From != "" && r.Image != "" {
		errs = append(errs, errors.New("image and from exclude each other"))
	}
	return errors.Join(errs...)
}

func (s Spec) checkSource() error {
	if len(s.Image) > maxImage {
		return fmt.Errorf("image has %d bytes and may have %d", len(s.Image), maxImage)
	}
	if s.Image == "" && s.From == "" {
		return errors.New("image is missing: name a container image such as docker.io/library/nginx:1.27, or a .smolmachine file with from")
	}
	return nil
}

func (s Spec) checkSize() error {
	return errors.Join(
		between("cpus", int64(s.CPUs), 1, maxCPUs),
		between("memoryMb", s.MemoryMB, minMemoryMB, maxMemoryMB),
	)
}

func (d sizes) check() error {
	return errors.Join(between("storageGb", d.StorageGB, 1, maxDiskGB), between("overlayGb", d.OverlayGB, 1, maxDiskGB))
}

func between(name string, value, least, most int64) error {
	if value < least || value > most {
		return fmt.Errorf("%s is %d and has to be between %d and %d", name, value, least, most)
	}
	return nil
}

var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s Spec) checkProcess() error {
	var errs []error
	size := len(s.Workdir)
	for _, v := range s.Env {
		if !variablePattern.MatchString(v.Name) {
			errs = append(errs, fmt.Errorf("env has the name %q; a name consists of letters, digits and '_', and begins with no digit", v.Name))
		}
		size += len(v.Name) + len(v.Value)
	}
	for _, text := range slices.Concat(s.Entrypoint, s.Cmd) {
		size += len(text)
	}
	if s.Workdir != "" && !path.IsAbs(s.Workdir) {
		errs = append(errs, fmt.Errorf("workdir is %q and has to begin with /", s.Workdir))
	}
	if size > maxText {
		errs = append(errs, fmt.Errorf("entrypoint, cmd, env and workdir have %d bytes together and may have %d", size, maxText))
	}
	if parts := len(s.texts()); parts > maxTexts {
		errs = append(errs, fmt.Errorf("entrypoint, cmd and env have %d parts together and may have %d", parts, maxTexts))
	}
	if slices.ContainsFunc(s.texts(), func(text string) bool { return strings.ContainsRune(text, 0) }) {
		errs = append(errs, errors.New("entrypoint, cmd, env and workdir cannot hold the character NUL"))
	}
	return errors.Join(errs...)
}

func (s Spec) texts() []string {
	texts := append(slices.Concat(s.Entrypoint, s.Cmd), s.Workdir)
	for _, v := range s.Env {
		texts = append(texts, v.Value)
	}
	return texts
}

func (s Spec) checkPorts() error {
	var errs []error
	seen := map[uint16]bool{}
	for _, p := range s.Ports {
		if p.Host == 0 || p.Guest == 0 {
			errs = append(errs, fmt.Errorf("the port %d:%d has a 0; ports are 1 to 65535", p.Host, p.Guest))
		}
		if seen[p.Host] {
			errs = append(errs, fmt.Errorf("the host port %d is named twice", p.Host))
		}
		seen[p.Host] = true
	}
	if len(s.Ports) > maxPorts {
		errs = append(errs, fmt.Errorf("there are %d ports, and may be %d", len(s.Ports), maxPorts))
	}
	return errors.Join(errs...)
}

var policies = []string{api.RestartNever, api.RestartAlways, api.RestartOnFailure, api.RestartUnlessStopped}

func (s Spec) checkRestart() error {
	if !slices.Contains(policies, s.Restart.Policy) {
		return fmt.Errorf("restart.policy is %q and has to be one of %s", s.Restart.Policy, strings.Join(policies, ", "))
	}
	if s.Restart.MaxRetries < 0 {
		return fmt.Errorf("restart.maxRetries is %d and cannot be negative", s.Restart.MaxRetries)
	}
	return nil
}

// canonical returns networks in their canonical form.
func canonical(texts *[]string) (*[]string, error) {
	if texts == nil {
		return nil, nil
	}
	prefixes, err := egress.ParseAllowed(*texts)
	if err != nil {
		return nil, fmt.Errorf("allowedCidrs: %w", err)
	}
	found := []string{}
	for _, p := range prefixes {
		found = append(found, p.String())
	}
	return &found, nil
}

// allowed returns the networks that the guest may reach, and whether there are only these.
func (s Spec) allowed() (prefixes []netip.Prefix, restricted bool, err error) {
	if s.AllowedCIDRs == nil {
		return nil, false, nil
	}
	prefixes, err = egress.ParseAllowed(*s.AllowedCIDRs)
	return prefixes, true, err
}

var hashPattern = regexp.MustCompile(`^[A-Za-z0-9]{0,128}$`)

func checkHash(text string) error {
	if !hashPattern.MatchString(text) {
		return errors.New("specHash has to be at most 128 letters and digits")
	}
	return nil
}

func checkOwner(o *api.Owner) error {
	owner := or(o, api.Owner{})
	for _, text := range []string{owner.Cluster, owner.Namespace, owner.Name, owner.UID} {
		if len(text) > maxOwner {
			return fmt.Errorf("a text of owner has %d bytes and may have %d", len(text), maxOwner)
		}
	}
	return nil
}

// maxName is how long a name may be.
const maxName = 128

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// checkName checks the name of a machine.
func checkName(name string) error {
	if len(name) > maxName || !namePattern.MatchString(name) || strings.Contains(name, "--") || strings.HasSuffix(name, "-") {
		return api.Errorf(api.CodeBadRequest, "the name %.140q is invalid: a name has 1 to %d letters, digits, '_' and '-', begins with a letter or digit, "+
			"does not end in '-' and has no \"--\"", name, maxName)
	}
	return nil
}
