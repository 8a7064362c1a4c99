package noderunner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvm-operator/kvm-operator/pkg/vm/keeper"
	"github.com/kvm-operator/kvm-operator/pkg/vm/mounttest"
)

// TestMachineGetsAnImageOfItsOwnWhenTheCacheLacksIt: an image may be removed while a machine is down, and no init
// container runs again when a container is restarted.
func TestMachineGetsAnImageOfItsOwnWhenTheCacheLacksIt(t *testing.T) {
	r := master(t)
	host := t.TempDir()
	for _, name := range []string{"kernel", "initrd"} {
		if err := os.WriteFile(filepath.Join(host, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := &r.settings.Source
	s.Image.Kernel.URL, s.Image.Initrd.URL, s.ImageDirectories = "file://"+host+"/kernel", "file://"+host+"/initrd", []string{host}
	err := errors.Join(os.Mkdir(s.Images, 0o755), os.Mkdir(r.settings.State, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	slots := func(directory string) int {
		found, err := filepath.Glob(filepath.Join(directory, s.Image.Name+"-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	mounttest.ReadOnly(t, s.Images, func() {
		err := prepare(t, r.settings, func(p *preparation) error {
			err := p.getImage(t.Context())
			if p.image.Kernel == "" || slots(r.settings.ownImages()) != 1 || slots(s.Images) != 0 {
				t.Errorf("the image is %+v; %d images are in the machine's own cache and %d in that of the host", p.image, slots(r.settings.ownImages()), slots(s.Images))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	// An image that an init container got is used.
	if end := FetchImage(t.Context(), *s, r.log); end != (keeper.End{}) {
		t.Fatal(end)
	}
	if err := os.RemoveAll(r.settings.ownImages()); err != nil {
		t.Fatal(err)
	}
	mounttest.ReadOnly(t, s.Images, func() {
		err := prepare(t, r.settings, func(p *preparation) error { return p.getImage(t.Context()) })
		if err != nil || slots(r.settings.ownImages()) != 0 {
			t.Errorf("the image of the host is not used: %v", err)
		}
	})
}

// TestInitContainerSaysWhyThereIsNoImage, in one sentence, as it is in the status of the node.
func TestInitContainerSaysWhyThereIsNoImage(t *testing.T) {
	r := master(t)
	end := FetchImage(t.Context(), r.settings.Source, r.log)
	if end.Reason != keeper.ReasonImageUnavailable || strings.Count(end.Message, "getting") != 1 || !strings.Contains(end.Message, "/nonexistent/kernel") {
		t.Errorf("it says %+v", end)
	}
}
