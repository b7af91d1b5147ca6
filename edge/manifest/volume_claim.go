package manifest

import (
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkEphemeral checks the claim template of an ephemeral volume.
func (r *review) checkEphemeral(p *field.Path, v *v1.Volume) {
	p = p.Child("volumeClaimTemplate")
	t := v.Ephemeral.VolumeClaimTemplate
	if t == nil {
		r.rejectMissing(p, "")
		return
	}
	r.errs = append(r.errs, apivalidation.ValidateAnnotations(t.Annotations, p.Child("metadata", "annotations"))...)
	r.errs = append(r.errs, metav1validation.ValidateLabels(t.Labels, p.Child("metadata", "labels"))...)
	rest := t.ObjectMeta
	rest.Labels, rest.Annotations = nil, nil
	if !reflect.DeepEqual(rest, metav1.ObjectMeta{}) {
		r.addForbidden(p.Child("metadata"), "can only have labels and annotations")
	}
	p = p.Child("spec")
	r.accessModes(p.Child("accessModes"), t.Spec.AccessModes)
	if t.Spec.Selector != nil {
		r.checkSelector(p.Child("selector"), t.Spec.Selector)
	}
	at := p.Child("resources", "requests").Key(string(v1.ResourceStorage))
	if size, found := t.Spec.Resources.Requests[v1.ResourceStorage]; !found {
		r.rejectMissing(at, "")
	} else {
		r.failIf(size.Sign() <= 0, at, size.String(), "must be greater than 0")
	}
	if name := t.Spec.StorageClassName; name != nil && *name != "" {
		r.checkRule(p.Child("storageClassName"), *name, checkSubdomain)
	}
	if name := t.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		r.checkRule(p.Child("volumeAttributesClassName"), *name, checkSubdomain)
	}
	oneOfIf(r, p.Child("volumeMode"), t.Spec.VolumeMode, v1.PersistentVolumeBlock, v1.PersistentVolumeFilesystem)
	r.dataSource(p, &t.Spec)
}

func (r *review) accessModes(p *field.Path, modes []v1.PersistentVolumeAccessMode) {
	if len(modes) == 0 {
		r.rejectMissing(p, "")
	}
	for i, mode := range modes {
		oneOf(r, p.Index(i), mode, v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod)
	}
	other := func(mode v1.PersistentVolumeAccessMode) bool { return mode != v1.ReadWriteOncePod }
	if slices.Contains(modes, v1.ReadWriteOncePod) && slices.ContainsFunc(modes, other) {
		r.addForbidden(p, "ReadWriteOncePod cannot be combined with another mode")
	}
}

// dataSource checks the fields for the initial content of a volume. The deprecated field and its replacement must agree.
func (r *review) dataSource(p *field.Path, spec *v1.PersistentVolumeClaimSpec) {
	if s := spec.DataSource; s != nil {
		r.dataObject(p.Child("dataSource"), s.APIGroup, s.Kind, s.Name)
	}
	ref := spec.DataSourceRef
	if ref == nil {
		return
	}
	at := p.Child("dataSourceRef")
	r.dataObject(at, ref.APIGroup, ref.Kind, ref.Name)
	elsewhere := ref.Namespace != nil && *ref.Namespace != ""
	if elsewhere {
		r.checkRule(at.Child("namespace"), *ref.Namespace, validation.IsDNS1123Label)
	}
	if s := spec.DataSource; s != nil {
		agree := !elsewhere && reflect.DeepEqual(s.APIGroup, ref.APIGroup) && s.Kind == ref.Kind && s.Name == ref.Name
		r.failIf(!agree, p.Child("dataSource"), s.Name, "must be equal to dataSourceRef, which must not have a namespace")
	}
}

func (r *review) dataObject(p *field.Path, group *string, kind, name string) {
	r.requireText(p.Child("name"), name)
	r.requireText(p.Child("kind"), kind)
	if group != nil && *group != "" {
		r.checkRule(p.Child("apiGroup"), *group, checkSubdomain)
		return
	}
	r.failIf(kind != "PersistentVolumeClaim", p, kind, "must be a PersistentVolumeClaim without apiGroup")
}
