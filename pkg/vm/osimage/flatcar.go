package osimage

import (
	"fmt"
	"net/url"
	"strings"
)

const (
	// FlatcarMirror is where Flatcar publishes its images.
	FlatcarMirror = "https://{channel}.release.flatcar-linux.net/amd64-usr/{version}"
	// FlatcarIgnitionKey is the fw_cfg name under which Flatcar looks for its configuration.
	FlatcarIgnitionKey = "opt/org.flatcar-linux/config"

	flatcarDomain = ".release.flatcar-linux.net"
)

// FlatcarFrom returns the PXE image of a release of Flatcar Container Linux, such as 4459.2.1 of the channel stable, with
// the signatures of its files. The mirror, such as FlatcarMirror, is the URL of the directory with the files, in which
// {channel} and {version} are replaced by the channel and the version.
//
// The arguments make Ignition run on every boot, because the root disk may be new, and mount the disk with serial
// number "rootfs" as root.
func FlatcarFrom(mirror, channel, version string) Image {
	base := strings.TrimSuffix(strings.NewReplacer("{channel}", channel, "{version}", version).Replace(mirror), "/")
	signed := func(name string) File {
		return File{URL: base + "/" + name, SignatureURL: base + "/" + name + ".sig"}
	}
	return Image{
		Name:   fmt.Sprintf("flatcar-%s-%s", channel, version),
		Kernel: signed("flatcar_production_pxe.vmlinuz"),
		Initrd: signed("flatcar_production_pxe_image.cpio.gz"),
		KernelArguments: []string{
			"flatcar.first_boot=1", "root=/dev/disk/by-id/virtio-rootfs", "rootflags=rw",
		},
		IgnitionKey: FlatcarIgnitionKey,
	}
}

func isFlatcar(text string) bool {
	location, err := url.Parse(text)
	return err == nil && strings.HasSuffix(location.Hostname(), flatcarDomain)
}
