// Package dataimport is the handler of the DataVolumes by which CDI imports the disks of a Machine.
package dataimport

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name is the handler's name.
const Name = vitistack.HandlerImport

// again is when a pass looks again without an event.
const again = 30 * time.Second

// Resource is the pure part of the handler. No DataVolume is pruned: each ends by what it says itself.
func Resource() apply.Resource[*vitistack.State] {
	return apply.Resource[*vitistack.State]{Handler: Name, Kinds: []client.Object{&cdiv1.DataVolume{}}, Build: build, KeepUnwanted: true}
}

// build wants a DataVolume for each disk that has no claim yet. One that exists is not changed, because CDI allows no
// change, until it has done its work, also if its disk was removed from the spec: half a disk must not be taken for a
// whole one.
func build(s *vitistack.State) (apply.Desired, error) {
	if err := s.Refusal(); err != nil {
		return apply.Desired{}, err
	}
	var desired apply.Desired
	there := map[string]bool{}
	for _, dv := range s.OwnImports() {
		there[dv.Name] = true
	}
	for i := range s.Wanted.Disks {
		d := &s.Wanted.Disks[i]
		if !s.ToImport(d) {
			continue
		}
		wait := chain.Wait(v1alpha1.ReasonImporting, fmt.Sprintf("waits until CDI has created claim %s of disk %s", d.Claim, d.Name), again)
		switch {
		case there[d.Claim]:
		case s.KubeVirt == vitistack.Unknown:
			// The VirtualMachine may have another claim for the disk: this one would stay unused.
			wait = chain.Wait(v1alpha1.ReasonPending, "it is not known yet which claim the VirtualMachine has for disk "+d.Name, again)
		default:
			desired.Objects = append(desired.Objects, dataVolume(s, d))
		}
		desired.Wait = &wait
	}
	return desired, nil
}

// noAdoption forbids CDI to take over a claim that exists: with the claim, its data would be deleted with the
// DataVolume. https://github.com/kubevirt/containerized-data-importer/blob/main/doc/datavolumes.md
const noAdoption = "cdi.kubevirt.io/allowClaimAdoption"

func dataVolume(s *vitistack.State, d *vitistack.Disk) *cdiv1.DataVolume {
	more := map[string]string{}
	if d.Root {
		more[v1alpha1.LabelDiskType] = v1alpha1.DiskTypeBoot
	}
	spec := d.ClaimSpec()
	dv := &cdiv1.DataVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: cdiv1.SchemeGroupVersion.String(), Kind: "DataVolume"},
		ObjectMeta: s.ObjectMeta(d.Claim, more),
		Spec:       cdiv1.DataVolumeSpec{PVC: &spec, Source: source(d.Source)},
	}
	dv.Annotations = d.ImportAnnotations()
	dv.Annotations[noAdoption] = "false"
	return dv
}

// source is what CDI imports. Secrets and ConfigMaps are those of the namespace of the DataVolume, which is the
// Machine's.
func source(s *v1alpha1.DiskSource) *cdiv1.DataVolumeSource {
	if image := s.HTTP; image != nil {
		return &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
			URL: image.URL, SecretRef: name(image.SecretRef), CertConfigMap: name(image.CertConfigMapRef),
		}}
	}
	registry := &cdiv1.DataVolumeSourceRegistry{URL: &s.Registry.URL}
	if secret := name(s.Registry.SecretRef); secret != "" {
		registry.SecretRef = &secret
	}
	if certificates := name(s.Registry.CertConfigMapRef); certificates != "" {
		registry.CertConfigMap = &certificates
	}
	return &cdiv1.DataVolumeSource{Registry: registry}
}

func name(r *v1alpha1.ObjectReference) string {
	if r == nil {
		return ""
	}
	return r.Name
}

// New returns the handler. engine returns the engine that writes where CDI is, nil while there is none.
func New(engine func(*vitistack.State) *apply.Engine) chain.Handler[*vitistack.State] {
	return handler{engine: engine}
}

type handler struct {
	engine func(*vitistack.State) *apply.Engine
}

// Name is the handler's name.
func (handler) Name() string { return Name }

// Declared returns the pure part of the handler.
func (handler) Declared() apply.Resource[*vitistack.State] { return Resource() }

// EnsureCreated is Done when the claim of each disk that is imported exists. KubeVirt starts no guest before CDI has
// filled it. Without such disks it does not matter whether CDI is installed.
func (h handler) EnsureCreated(ctx context.Context, s *vitistack.State) (chain.Outcome, error) {
	if !s.ImportsAnything() {
		return chain.NotConfigured(), nil
	}
	if err := s.Refusal(); err != nil {
		return chain.Outcome{}, err
	}
	disks := waiting(s)
	if s.CDI == vitistack.Absent && len(disks) > 0 {
		return chain.Outcome{}, problem.Newf(v1alpha1.CDINotInstalled,
			"disks to be imported: %s; CDI is not installed: the API server has no DataVolumes of cdi.kubevirt.io; install CDI, or remove them from the spec, "+
				"where a disk of the template is then empty", strings.Join(disks, ", "))
	}
	engine := connected(h.engine, s)
	switch {
	case engine != nil:
		return Resource().Handle(engine).EnsureCreated(ctx, s)
	case len(disks) > 0:
		return unknown(), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted deletes the DataVolumes, and with them what CDI has not filled yet. It is Done when they are gone, or
// CDI is.
func (h handler) EnsureDeleted(ctx context.Context, s *vitistack.State) (chain.Outcome, error) {
	if s.CDI == vitistack.Absent || !s.ImportsAnything() {
		return chain.Done(), nil
	}
	engine := connected(h.engine, s)
	if engine == nil {
		return unknown(), nil
	}
	return Resource().Handle(engine).EnsureDeleted(ctx, s)
}

// waiting returns the disks that wait for CDI to make their claims.
func waiting(s *vitistack.State) []string {
	var disks []string
	for i := range s.Wanted.Disks {
		if s.ToImport(&s.Wanted.Disks[i]) {
			disks = append(disks, s.Wanted.Disks[i].Name)
		}
	}
	return disks
}

// connected returns the engine; nil while it is not known what there is.
func connected(engine func(*vitistack.State) *apply.Engine, s *vitistack.State) *apply.Engine {
	if s.CDI != vitistack.Installed {
		return nil
	}
	return engine(s)
}

func unknown() chain.Outcome {
	return chain.Wait(v1alpha1.ReasonPending, "it is not known yet whether CDI is installed and what it has of this Machine", again)
}
