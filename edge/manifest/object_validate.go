package manifest

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxKeys is the maximum number of keys of a ConfigMap or Secret. The limit exists because each key becomes a file. An API server has
	// no such limit, but real objects have far fewer keys.
	maxKeys = 10_000
	// maxClaim is the maximum size of a claim, in bytes. It is also the maximum quota of a file system.
	maxClaim = 1 << 60
)

// validateObject returns the errors that an API server would report for a new object. It also returns an error for each feature that this
// node does not support.
func validateObject(obj Object) field.ErrorList {
	r := &review{}
	meta := field.NewPath("metadata")
	r.checkRule(meta.Child("namespace"), obj.GetNamespace(), validation.IsDNS1123Label)
	r.checkRule(meta.Child("name"), obj.GetName(), checkSubdomain)
	r.errs = append(r.errs, apivalidation.ValidateAnnotations(obj.GetAnnotations(), meta.Child("annotations"))...)
	r.errs = append(r.errs, metav1validation.ValidateLabels(obj.GetLabels(), meta.Child("labels"))...)
	switch o := obj.(type) {
	case *v1.ConfigMap:
		r.configMapObject(o)
	case *v1.Secret:
		r.secretObject(o)
	case *v1.PersistentVolumeClaim:
		r.claimObject(field.NewPath("spec"), &o.Spec)
	}
	return r.errs
}

// configMapObject checks a ConfigMap. See
// https://kubernetes.io/docs/concepts/configuration/configmap/#configmap-object.
func (r *review) configMapObject(m *v1.ConfigMap) {
	if r.tooMany(field.NewPath("data"), len(m.Data)+len(m.BinaryData)) {
		return
	}
	total := 0
	for _, k := range slices.Sorted(maps.Keys(m.Data)) {
		at := field.NewPath("data").Key(k)
		r.checkRule(at, k, validation.IsConfigMapKey)
		if _, twice := m.BinaryData[k]; twice {
			r.addInvalid(at, k, "duplicate of key present in binaryData")
		}
		total += len(k) + len(m.Data[k])
	}
	for _, k := range slices.Sorted(maps.Keys(m.BinaryData)) {
		r.checkRule(field.NewPath("binaryData").Key(k), k, validation.IsConfigMapKey)
		total += len(k) + len(m.BinaryData[k])
	}
	r.tooLarge(field.NewPath("data"), total)
}

// secretObject checks a Secret. See https://kubernetes.io/docs/concepts/configuration/secret/#secret-types.
func (r *review) secretObject(s *v1.Secret) {
	data := field.NewPath("data")
	if r.tooMany(data, len(s.Data)) {
		return
	}
	total := 0
	for _, k := range slices.Sorted(maps.Keys(s.Data)) {
		r.checkRule(data.Key(k), k, validation.IsConfigMapKey)
		total += len(k) + len(s.Data[k])
	}
	r.tooLarge(data, total)
	needs := func(keys ...string) {
		for _, k := range keys {
			if _, found := s.Data[k]; !found {
				r.rejectMissing(data.Key(k), "")
			}
		}
	}
	isJSON := func(k string) {
		needs(k)
		if text, found := s.Data[k]; found && !json.Valid(text) {
			r.addInvalid(data.Key(k), "<secret contents redacted>", "must be JSON")
		}
	}
	switch s.Type {
	case v1.SecretTypeDockercfg:
		isJSON(v1.DockerConfigKey)
	case v1.SecretTypeDockerConfigJson:
		isJSON(v1.DockerConfigJsonKey)
	case v1.SecretTypeSSHAuth:
		if len(s.Data[v1.SSHAuthPrivateKey]) == 0 {
			r.rejectMissing(data.Key(v1.SSHAuthPrivateKey), "")
		}
	case v1.SecretTypeTLS:
		needs(v1.TLSCertKey, v1.TLSPrivateKeyKey)
	case v1.SecretTypeBasicAuth:
		_, user := s.Data[v1.BasicAuthUsernameKey]
		_, password := s.Data[v1.BasicAuthPasswordKey]
		if !user && !password {
			r.rejectMissing(data.Key(v1.BasicAuthUsernameKey), "")
			r.rejectMissing(data.Key(v1.BasicAuthPasswordKey), "")
		}
	case v1.SecretTypeServiceAccountToken:
		r.addForbidden(field.NewPath("type"), "a node has no service accounts of its own")
	}
}

// claimObject checks a claim whose volume is a directory of this node.
func (r *review) claimObject(p *field.Path, s *v1.PersistentVolumeClaimSpec) {
	r.accessModes(p.Child("accessModes"), s.AccessModes)
	at := p.Child("resources", "requests").Key(string(v1.ResourceStorage))
	size, found := s.Resources.Requests[v1.ResourceStorage]
	switch {
	case !found:
		r.rejectMissing(at, "")
	case size.Sign() <= 0:
		r.addInvalid(at, size.String(), "must be greater than 0")
	case size.Cmp(*resource.NewQuantity(maxClaim, resource.BinarySI)) > 0:
		r.addInvalid(at, size.String(), "must be at most 1Ei")
	}
	if limit, found := s.Resources.Limits[v1.ResourceStorage]; found && limit.Cmp(size) < 0 {
		r.addInvalid(at, size.String(), "must be less than or equal to the limit")
	}
	if name := s.StorageClassName; name != nil && *name != "" {
		r.checkRule(p.Child("storageClassName"), *name, checkSubdomain)
	}
	const directory = "a claim of a manifest becomes a new directory of this node"
	if s.VolumeName != "" {
		r.addForbidden(p.Child("volumeName"), directory)
	}
	if s.Selector != nil {
		r.addForbidden(p.Child("selector"), directory)
	}
	if s.DataSource != nil {
		r.addForbidden(p.Child("dataSource"), directory)
	}
	if s.DataSourceRef != nil {
		r.addForbidden(p.Child("dataSourceRef"), directory)
	}
	switch mode := *s.VolumeMode; mode {
	case v1.PersistentVolumeFilesystem:
	case v1.PersistentVolumeBlock:
		r.addForbidden(p.Child("volumeMode"), directory+", which is not a block device")
	default:
		oneOf(r, p.Child("volumeMode"), mode, v1.PersistentVolumeFilesystem)
	}
}

func (r *review) tooMany(p *field.Path, n int) bool {
	if n > maxKeys {
		r.errs = append(r.errs, field.TooMany(p, n, maxKeys))
	}
	return n > maxKeys
}

func (r *review) tooLarge(p *field.Path, bytes int) {
	if bytes > v1.MaxSecretSize {
		r.errs = append(r.errs, field.TooLong(p, "", v1.MaxSecretSize))
	}
}
