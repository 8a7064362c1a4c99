package microvm

import (
	"slices"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

func pointer[T any](value T) *T { return &value }

func TestWrongRequestsAreRefused(t *testing.T) {
	for text, c := range map[string]struct {
		change func(*api.CreateRequest)
		code   api.Code
		want   string
	}{
		"no image":                 {func(r *api.CreateRequest) { r.Image = "" }, api.CodeBadRequest, "image is missing"},
		"an artifact and an image": {func(r *api.CreateRequest) { r.From = "/a.smolmachine" }, api.CodeBadRequest, "image and from exclude each other"},
		"an artifact elsewhere":    {func(r *api.CreateRequest) { r.Image, r.From = "", "/etc/shadow" }, api.CodeBadRequest, "not below the directory of artifacts"},
		"no CPUs for an artifact":  {func(r *api.CreateRequest) { r.Image, r.From, r.CPUs = "", "/a", pointer(0) }, api.CodeBadRequest, "cpus is 0"},
		"no CPUs":                  {func(r *api.CreateRequest) { r.CPUs = pointer(0) }, api.CodeBadRequest, "cpus is 0"},
		"too many CPUs":            {func(r *api.CreateRequest) { r.CPUs = pointer(256) }, api.CodeBadRequest, "between 1 and 255"},
		"too little memory":        {func(r *api.CreateRequest) { r.MemoryMB = pointer(int64(63)) }, api.CodeBadRequest, "memoryMb is 63"},
		"memory that overflows":    {func(r *api.CreateRequest) { r.MemoryMB = pointer(int64(1) << 62) }, api.CodeBadRequest, "memoryMb is"},
		"no storage":               {func(r *api.CreateRequest) { r.StorageGB = pointer(int64(0)) }, api.CodeBadRequest, "storageGb is 0"},
		"a negative overlay":       {func(r *api.CreateRequest) { r.OverlayGB = pointer(int64(-1)) }, api.CodeBadRequest, "overlayGb is -1"},
		"port 0":                   {func(r *api.CreateRequest) { r.Ports[0].Guest = 0 }, api.CodeBadRequest, "the port 18080:0 has a 0"},
		"a port twice":             {func(r *api.CreateRequest) { r.Ports = append(r.Ports, r.Ports[0]) }, api.CodeBadRequest, "18080 is named twice"},
		"too many ports":           {func(r *api.CreateRequest) { r.Ports = manyPorts(129) }, api.CodeBadRequest, "there are 129 ports"},
		"no network":               {func(r *api.CreateRequest) { r.AllowedCIDRs = &[]string{"10.0.0.300/8"} }, api.CodeBadRequest, "allowedCidrs"},
		"host bits":                {func(r *api.CreateRequest) { r.AllowedCIDRs = &[]string{"10.1.2.3/8"} }, api.CodeBadRequest, "10.0.0.0/8"},
		"a variable's name":        {func(r *api.CreateRequest) { r.Env = []api.EnvVar{{Name: "A B"}} }, api.CodeBadRequest, `env has the name "A B"`},
		"NUL":                      {func(r *api.CreateRequest) { r.Cmd = []string{"a\x00b"} }, api.CodeBadRequest, "NUL"},
		"a relative directory":     {func(r *api.CreateRequest) { r.Workdir = "srv" }, api.CodeBadRequest, `workdir is "srv"`},
		"too much text":            {func(r *api.CreateRequest) { r.Cmd = []string{strings.Repeat("a", maxText+1)} }, api.CodeBadRequest, "may have 262144"},
		"a policy":                 {func(r *api.CreateRequest) { r.Restart = &api.Restart{Policy: "sometimes"} }, api.CodeBadRequest, "never, always, on-failure, unless-stopped"},
		"negative retries":         {func(r *api.CreateRequest) { r.Restart = &api.Restart{Policy: "always", MaxRetries: -1} }, api.CodeBadRequest, "maxRetries is -1"},
		"a mount":                  {func(r *api.CreateRequest) { r.Mounts = []api.Mount{{Source: "/", Target: "/host"}} }, api.CodeUnsupported, "mounts"},
		"secrets":                  {func(r *api.CreateRequest) { r.Secrets = map[string]any{"a": "b"} }, api.CodeBadRequest, "secrets"},
		"host names":               {func(r *api.CreateRequest) { r.AllowedHosts = &[]string{} }, api.CodeUnsupported, "allowedHosts"},
		"another backend":          {func(r *api.CreateRequest) { r.NetworkBackend = "tsi" }, api.CodeBadRequest, `networkBackend is "tsi"`},
		"a digest":                 {func(r *api.CreateRequest) { r.SpecHash = "a b" }, api.CodeBadRequest, "specHash"},
		"a GPU":                    {func(r *api.CreateRequest) { r.GPU = true }, api.CodeUnsupported, "gpu"},
	} {
		t.Run(text, func(t *testing.T) {
			n := newNode(t)
			r := request("a")
			c.change(&r)
			_, err := n.open().Create(t.Context(), r)
			if api.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v (%s), want %s: %s", err, api.CodeOf(err), c.code, c.want)
			}
			if exists(n.directory("a")) {
				t.Error("something is left")
			}
		})
	}
}

func manyPorts(n int) []api.Port {
	var ports []api.Port
	for i := range n {
		ports = append(ports, api.Port{Host: uint16(1000 + i), Guest: 80})
	}
	return ports
}

func TestEverythingThatIsWrongIsNamed(t *testing.T) {
	_, _, err := specOf(api.CreateRequest{CPUs: pointer(0), MemoryMB: pointer(int64(1)), GPU: true, Ports: []api.Port{{Host: 22, Guest: 22}}}, nil)
	for _, want := range []string{"image", "cpus", "memoryMb", "gpu", "not 22"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "k8s-team-a-web-1-3fb1c09e7a": true, "A_b": true, strings.Repeat("a", 128): true,
		"": false, "-a": false, "a-": false, "a--b": false, "_a": false, "a.b": false, "a/b": false, "..": false, "a:b": false, "ä": false, "a\n": false, strings.Repeat("a", 129): false,
	} {
		if err := checkName(name); (err == nil) != good {
			t.Errorf("%q: %v, want good: %t", name, err, good)
		}
	}
}

func TestTheHashIsOfWhatCannotChange(t *testing.T) {
	base := request("a")
	base.Ports = []api.Port{{Host: 1, Guest: 2}, {Host: 3, Guest: 4}}
	base.AllowedCIDRs = &[]string{"192.0.2.0/24", "198.51.100.7"}
	hash := func(change func(*api.CreateRequest)) string {
		r := base
		change(&r)
		s, _, err := specOf(r, allPorts)
		try(t, err)
		return s.Hash()
	}
	same := hash(func(*api.CreateRequest) {})
	for text, change := range map[string]func(*api.CreateRequest){
		"defaults that are named": func(r *api.CreateRequest) { r.CPUs, r.MemoryMB = pointer(1), pointer(int64(512)) },
		"the order of ports":      func(r *api.CreateRequest) { r.Ports = []api.Port{{Host: 3, Guest: 4}, {Host: 1, Guest: 2}} },
		"the form of a network":   func(r *api.CreateRequest) { r.AllowedCIDRs = &[]string{"198.51.100.7/32", "192.0.2.0/24"} },
		"the sizes of disks":      func(r *api.CreateRequest) { r.StorageGB = pointer(int64(7)) },
	} {
		if hash(change) != same {
			t.Errorf("%s changes the hash", text)
		}
	}
	hashes := []string{same}
	for text, change := range map[string]func(*api.CreateRequest){
		"the image": func(r *api.CreateRequest) { r.Image = "b" }, "CPUs": func(r *api.CreateRequest) { r.CPUs = pointer(2) },
		"memory": func(r *api.CreateRequest) { r.MemoryMB = pointer(int64(64)) }, "a port": func(r *api.CreateRequest) { r.Ports = r.Ports[:1] },
		"the network": func(r *api.CreateRequest) { r.Network = true }, "no list": func(r *api.CreateRequest) { r.AllowedCIDRs = nil },
		"an empty list": func(r *api.CreateRequest) { r.AllowedCIDRs = &[]string{} }, "a variable": func(r *api.CreateRequest) { r.Env = []api.EnvVar{{Name: "A"}} },
		"the command": func(r *api.CreateRequest) { r.Cmd = []string{"a"} }, "the entrypoint": func(r *api.CreateRequest) { r.Entrypoint = []string{"a"} },
	} {
		h := hash(change)
		if slices.Contains(hashes, h) {
			t.Errorf("%s does not change the hash, or not on its own", text)
		}
		hashes = append(hashes, h)
	}
}
