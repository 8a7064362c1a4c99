package vitistack

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

const (
	// literalDefault means the class of this name if there is one, else the cluster's default.
	literalDefault = "default"
	// annotationDefault marks the cluster's default class.
	// https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass
	annotationDefault = "storageclass.kubernetes.io/is-default-class"
)

// storageClass returns the class of a disk, nil for the cluster's default. A claim that is bound has its class already,
// and needs it no more, as one of another name, which is there already; it is asked for what it was asked for before, so that
// being bound is no change.
func (p *plan) storageClass(d *v1alpha1.Disk, claim string) *string {
	c := p.Claims[claim]
	settled := claim != p.Machine.Name+"-"+d.Name || c != nil && c.Status.Phase == corev1.ClaimBound && p.owns(c)
	named, from := d.StorageClass, "the disk's storageClass"
	if named == literalDefault && !p.hasClass(named) {
		named = ""
	}
	if named == "" {
		named, from = p.Settings.StorageClass, "the operator's setting STORAGE_CLASS_NAME"
	}
	switch {
	case named != "" && !settled && !p.hasClass(named):
		p.report(v1alpha1.StorageClassNotFound, "StorageClass %s of disk %s not found; create it, or change %s", named, d.Name, from)
		return &named
	case named != "":
		return &named
	case !settled && DefaultClass(p.StorageClasses) == "":
		p.report(v1alpha1.StorageClassNotFound, "disk %s names no StorageClass and the cluster has no default one; set the disk's storageClass, or the annotation %s on a class", d.Name, annotationDefault)
	}
	return nil
}

func (p *plan) hasClass(name string) bool {
	for i := range p.StorageClasses {
		if p.StorageClasses[i].Name == name {
			return true
		}
	}
	return false
}

// DefaultClass returns the name of the cluster's default class; empty if there is none. Of several the newest counts, as
// in Kubernetes.
func DefaultClass(classes []storagev1.StorageClass) string {
	var found *storagev1.StorageClass
	for i := range classes {
		c := &classes[i]
		if c.Annotations[annotationDefault] != "true" {
			continue
		}
		newer := found != nil && found.CreationTimestamp.Before(&c.CreationTimestamp)
		sameAge := found != nil && found.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < found.Name
		if found == nil || newer || sameAge {
			found = c
		}
	}
	if found == nil {
		return ""
	}
	return found.Name
}
