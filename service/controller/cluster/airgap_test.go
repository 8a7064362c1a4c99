package cluster

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

var (
	// links are URLs, apart from those that only people follow.
	links = regexp.MustCompile(`https?://[^\s"'\\,<>)]+`)
	// images are names of container images with the registry that they come from.
	images = regexp.MustCompile(`image: "?([a-z0-9.-]+\.[a-z0-9.-]+(?::\d+)?)/`)
	// read by people only.
	documentation = regexp.MustCompile(`Documentation=\S+|#[^\n]*`)
)

// TestAirGappedClusterNamesNoOtherHost covers F-32: where the settings name registry, mirrors and downloads, neither the
// management cluster nor a guest is told to ask anybody else for anything.
func TestAirGappedClusterNamesNoOtherHost(t *testing.T) {
	sc := full()
	sc.settings.RunnerImage = "registry.corp.example/kvm-operator/runner:test"
	sc.settings.Guest.RegistryDomain = "registry.corp.example"
	sc.settings.Guest.RegistryMirrors = []string{"mirror.corp.example"}
	sc.settings.Guest.BinaryBaseURL = "https://files.corp.example/kubernetes"
	sc.settings.Guest.NTPServers = []string{"ntp.corp.example"}
	sc.settings.Guest.Proxy.HTTP, sc.settings.Guest.Proxy.HTTPS = "", ""
	sc.settings.Guest.OIDC.IssuerURL = "https://dex.corp.example"
	sc.config.Spec.GuestImage = &v1alpha1.GuestImage{
		Name: "own", Kernel: v1alpha1.ImageFile{URL: "https://files.corp.example/vmlinuz"}, Initrd: v1alpha1.ImageFile{URL: "https://files.corp.example/initrd"},
	}
	asked := 0
	for name, text := range files(t, sc.render(t)) {
		text = documentation.ReplaceAllString(text, "")
		for _, link := range links.FindAllString(text, -1) {
			u, err := url.Parse(link)
			if err != nil {
				continue // a pattern such as https://{host}
			}
			asked++
			if !ownHost(u.Hostname()) {
				t.Errorf("%s has %s", name, link)
			}
		}
		for _, image := range images.FindAllStringSubmatch(text, -1) {
			asked++
			if !ownHost(image[1]) {
				t.Errorf("%s has an image of %s", name, image[1])
			}
		}
	}
	if asked < 25 {
		t.Errorf("only %d hosts are named: the test does not see what it looks for", asked)
	}
}

// ownHost tells whether a name is of the site, of the cluster, or of the machine itself.
func ownHost(name string) bool {
	for _, suffix := range []string{".corp.example", ".svc.cluster.local", ".k8s.example.org", "localhost", "127.0.0.1"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
