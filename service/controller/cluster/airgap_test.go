package cluster

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/addon"
)

var (
	// links matches URLs.
	links = regexp.MustCompile(`https?://[^\s"'\\,<>)]+`)
	// images matches names of container images, whose first part is the registry.
	images = regexp.MustCompile(`image: "?([^/\s"]+)`)
	// documentation matches text that only people read: the Documentation= lines of units, and comments.
	documentation = regexp.MustCompile(`Documentation=\S+|#[^\n]*`)
)

// TestAirGappedClusterNamesNoOtherHost: if the settings name registry, mirrors and downloads, neither the management
// cluster, nor the guests, nor the add-ons in the workload cluster refer to another host.
func TestAirGappedClusterNamesNoOtherHost(t *testing.T) {
	for name, image := range map[string]*v1alpha1.GuestImage{
		"the default image": nil,
		"its own image": {
			Name: "own", Kernel: v1alpha1.ImageFile{URL: "https://files.corp.example/vmlinuz"}, Initrd: v1alpha1.ImageFile{URL: "https://files.corp.example/initrd"},
		},
	} {
		t.Run(name, func(t *testing.T) { namesNoOtherHost(t, image) })
	}
}

func namesNoOtherHost(t *testing.T, guest *v1alpha1.GuestImage) {
	t.Helper()
	sc := full()
	sc.settings.RunnerImage = "registry.corp.example/kvm-operator/runner:test"
	sc.settings.Guest.RegistryDomain = "registry.corp.example"
	sc.settings.Guest.RegistryMirrors = []string{"mirror.corp.example"}
	sc.settings.Guest.BinaryBaseURL = "https://files.corp.example/kubernetes"
	sc.settings.Guest.CNIPluginsBaseURL = "https://files.corp.example/cni"
	sc.settings.Guest.NTPServers = []string{"ntp.corp.example"}
	sc.settings.Guest.Proxy.HTTP, sc.settings.Guest.Proxy.HTTPS = "", ""
	sc.settings.Guest.OIDC.IssuerURL = "https://dex.corp.example"
	sc.settings.FlatcarMirror = "https://files.corp.example/flatcar/{channel}/{version}"
	sc.config.Spec.GuestImage = guest
	rendered, snapshot, inside := sc.render(t), sc.snapshot(t, world{}), 0
	for _, a := range addon.All() {
		desired, err := a.Build(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		rendered = append(rendered, Rendered{Handler: a.Handler, Objects: desired.Objects})
	}
	asked, downloads := 0, 0
	for name, text := range files(t, rendered) {
		text = documentation.ReplaceAllString(text, "")
		for _, link := range links.FindAllString(text, -1) {
			u, err := url.Parse(link)
			if err != nil {
				continue // a pattern such as https://{host}
			}
			asked++
			if strings.Contains(name, "deployment/") && u.Hostname() == "files.corp.example" {
				downloads++
			}
			if !ownHost(u.Hostname()) {
				t.Errorf("%s has %s", name, link)
			}
		}
		for _, image := range images.FindAllStringSubmatch(text, -1) {
			asked++
			if strings.Contains(name, "DaemonSet") || strings.Contains(name, "Deployment-coredns") {
				inside++
			}
			if !ownHost(image[1]) {
				t.Errorf("%s has an image of %s", name, image[1])
			}
		}
	}
	if downloads == 0 {
		t.Error("no runner learns where its guest image is: it asks Flatcar")
	}
	if inside < 3 {
		t.Errorf("only %d images of add-ons are checked", inside)
	}
	if asked < 25 {
		t.Errorf("only %d hosts are named: the test does not see what it looks for", asked)
	}
}

// ownHost returns whether a name belongs to the site, to the cluster, or to the machine itself.
func ownHost(name string) bool {
	for _, suffix := range []string{".corp.example", ".svc.cluster.local", ".k8s.example.org", "localhost", "127.0.0.1"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
