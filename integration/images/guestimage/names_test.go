// Package guestimage holds the builder of guest images (build.sh) and checks that the full image matches boot data, the
// manifests of add-ons, and what these require of a node.
package guestimage_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheImageCarriesTheContainerImagesThatBootDataNames compares two lists from different places: boot data names
// images by the versions of the catalog, and the guest image has those of the binary that it was built from.
func TestTheImageCarriesTheContainerImagesThatBootDataNames(t *testing.T) {
	carried := strings.Fields(fileOfRoot(t, "usr/share/guest-images/names"))
	golden := read(t, filepath.Join("..", "..", "..", "pkg", "cluster", "cloudconfig", "testdata", "master.golden"))
	named := regexp.MustCompile(`(?m)^(?:    image: |sandbox_image = )"?([^"\n]+)`).FindAllStringSubmatch(golden, -1)
	if len(named) != 5 {
		t.Fatalf("the boot data of a master names %d images, want pause and those of four static pods", len(named))
	}
	for _, match := range named {
		if !slices.Contains(carried, match[1]) {
			t.Errorf("the guest image lacks %s; it has %s", match[1], carried)
		}
	}
}

// TestTheImageCarriesTheContainerImagesOfAddOns compares three lists: the manifests of add-ons, the images that are
// built for them, and the content of the guest image.
func TestTheImageCarriesTheContainerImagesOfAddOns(t *testing.T) {
	carried := strings.Fields(fileOfRoot(t, "usr/share/guest-images/names"))
	files := listRoot(t, "usr/share/guest-images/layer")
	for line := range strings.Lines(read(t, filepath.Join("..", "addons", "images"))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			t.Fatalf("%q is not a name, a program and a tool", line)
		}
		if !slices.Contains(carried, fields[0]) {
			t.Errorf("the guest image lacks %s; it has %s", fields[0], carried)
		}
		if !files["usr/share/guest-images/layer"+fields[1]] {
			t.Errorf("%s lacks its program %s", fields[0], fields[1])
		}
	}
	manifests, err := filepath.Glob(filepath.Join("..", "..", "..", "pkg", "cluster", "addons", "testdata", "default", "*.yaml"))
	if err != nil || len(manifests) == 0 {
		t.Fatalf("there are no manifests of add-ons: %v", err)
	}
	for _, manifest := range manifests {
		for _, match := range regexp.MustCompile(`(?m)^ *(?:- )?image: (\S+)$`).FindAllStringSubmatch(read(t, manifest), -1) {
			if !slices.Contains(carried, match[1]) {
				t.Errorf("the guest image lacks %s of %s; it has %s", match[1], filepath.Base(manifest), carried)
			}
		}
	}
}

// TestTheImageHasWhatPodNetworksNeed lists what is only needed at run time: by kube-proxy in its modes iptables, ipvs
// and nftables, by flannel's VXLAN, by the rules of both, and by CNI configurations.
func TestTheImageHasWhatPodNetworksNeed(t *testing.T) {
	modules := map[string]bool{}
	for path := range listRoot(t, "usr/lib/modules") {
		modules[strings.TrimSuffix(filepath.Base(path), ".ko")] = true
	}
	for what, needed := range map[string]string{
		"a pod network of VXLAN": "bridge br_netfilter veth vxlan udp_tunnel",
		"iptables":               "nft_compat nf_tables nft_chain_nat nf_nat xt_MASQUERADE xt_REDIRECT xt_addrtype xt_comment xt_conntrack xt_mark xt_multiport xt_nat xt_nfacct xt_recent xt_statistic ipt_REJECT nf_conntrack_netlink",
		"nftables":               "nft_ct nft_fib nft_fib_ipv4 nft_fib_ipv6 nft_limit nft_log nft_masq nft_nat nft_numgen nft_reject nft_reject_ipv4 nft_reject_ipv6",
		"ipvs":                   "ip_vs ip_vs_rr ip_vs_sh ip_set xt_set dummy",
	} {
		for module := range strings.FieldsSeq(needed) {
			if !modules[module] {
				t.Errorf("the guest image lacks the kernel module %s, which %s needs", module, what)
			}
		}
	}
	files := listRoot(t, "usr/lib/cni")
	for _, plugin := range []string{"bandwidth", "bridge", "firewall", "host-local", "loopback", "portmap", "ptp", "tuning"} {
		if !files["usr/lib/cni/"+plugin] {
			t.Errorf("the guest image lacks the CNI plugin %s", plugin)
		}
	}
}

const root = "../../../.tools/guest/root.squashfs"

// listRoot returns the paths below a directory of the full image's root file system.
func listRoot(t *testing.T, directory string) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	for line := range strings.Lines(unsquash(t, "-l", root, directory)) {
		path, inside := strings.CutPrefix(strings.TrimSpace(line), "squashfs-root/")
		paths[path] = inside
	}
	return paths
}

// fileOfRoot returns the content of a file of the full image's root file system.
func fileOfRoot(t *testing.T, path string) string {
	t.Helper()
	return unsquash(t, "-cat", root, path)
}

func unsquash(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := os.Stat(root); err != nil {
		t.Fatalf("the guest image is missing: %v\nrun `make tools` in the repository root", err)
	}
	output, err := exec.CommandContext(t.Context(), "unsquashfs", args...).Output()
	if err != nil {
		t.Fatalf("unsquashfs %v (of Debian's package squashfs-tools): %v", args, err)
	}
	return string(output)
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
