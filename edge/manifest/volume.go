package manifest

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// volumeList checks volumes. Their names must be unique, and each volume must have exactly one source.
func (r *review) volumeList(p *field.Path) {
	names := map[string]bool{}
	for i := range r.spec.Volumes {
		v, at := &r.spec.Volumes[i], p.Index(i)
		r.checkName(at.Child("name"), v.Name, validation.IsDNS1123Label)
		r.addUnique(at.Child("name"), names, v.Name)
		r.volumes[v.Name] = v
		sources := volumeSources(v)
		for _, more := range sources[min(1, len(sources)):] {
			r.addForbidden(at.Child(more), "may not have more than one source")
		}
		if len(sources) == 0 {
			r.rejectMissing(at, "must have a source")
		} else {
			r.volumeSource(at.Child(sources[0]), v, sources[0])
		}
	}
	r.ephemeralClaims(p)
}

// volumeSources returns the names of the source fields that are set in a volume.
func volumeSources(v *v1.Volume) []string {
	var names []string
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

func (r *review) volumeSource(p *field.Path, v *v1.Volume, source string) {
	switch source {
	case "emptyDir":
		if limit := v.EmptyDir.SizeLimit; limit != nil {
			r.notNegativeQuantity(p.Child("sizeLimit"), *limit)
		}
		if m := v.EmptyDir.Mode; m != nil {
			r.failIf(*m < 0 || *m > 0o1777, p.Child("mode"), *m, "must be between 0 and 01777 (octal), 1023 (decimal)")
		}
	case "hostPath":
		if r.requireText(p.Child("path"), v.HostPath.Path) {
			r.rejectBacksteps(p.Child("path"), v.HostPath.Path)
		}
		oneOfIf(r, p.Child("type"), v.HostPath.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory,
			v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
	case "image":
		r.requireText(p.Child("reference"), v.Image.Reference)
		r.pullPolicy(p.Child("pullPolicy"), v.Image.PullPolicy)
	case "secret":
		r.requireText(p.Child("secretName"), v.Secret.SecretName)
		r.checkMode(p.Child("defaultMode"), v.Secret.DefaultMode)
		r.checkUser(p.Child("defaultUser"), v.Secret.DefaultUser)
		r.keyPaths(p.Child("items"), v.Secret.Items)
	case "configMap":
		r.requireText(p.Child("name"), v.ConfigMap.Name)
		r.checkMode(p.Child("defaultMode"), v.ConfigMap.DefaultMode)
		r.checkUser(p.Child("defaultUser"), v.ConfigMap.DefaultUser)
		r.keyPaths(p.Child("items"), v.ConfigMap.Items)
	case "downwardAPI":
		r.checkMode(p.Child("defaultMode"), v.DownwardAPI.DefaultMode)
		r.checkUser(p.Child("defaultUser"), v.DownwardAPI.DefaultUser)
		for i := range v.DownwardAPI.Items {
			r.downwardFile(p.Child("items").Index(i), &v.DownwardAPI.Items[i])
		}
	case "projected":
		r.checkMode(p.Child("defaultMode"), v.Projected.DefaultMode)
		r.checkUser(p.Child("defaultUser"), v.Projected.DefaultUser)
		r.checkProjected(p, v.Projected)
	case "persistentVolumeClaim":
		r.requireText(p.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
	case "ephemeral":
		r.checkEphemeral(p, v)
	case "csi":
		r.checkCSI(p, v.CSI)
	default:
		r.checkStorage(p, v, source)
	}
}

// checkMode checks the mode of files. It may contain only permission bits.
func (r *review) checkMode(p *field.Path, mode *int32) {
	if mode != nil {
		r.failIf(*mode < 0 || *mode > 0o777, p, *mode, "must be between 0 and 0777 (octal), 511 (decimal)")
	}
}

func (r *review) keyPaths(p *field.Path, items []v1.KeyToPath) {
	for i, item := range items {
		at := p.Index(i)
		r.requireText(at.Child("key"), item.Key)
		r.requireText(at.Child("path"), item.Path)
		r.checkVisible(at.Child("path"), item.Path)
		r.checkMode(at.Child("mode"), item.Mode)
		r.checkUser(at.Child("user"), item.User)
	}
}

func (r *review) downwardFile(p *field.Path, f *v1.DownwardAPIVolumeFile) {
	r.requireText(p.Child("path"), f.Path)
	r.checkVisible(p.Child("path"), f.Path)
	r.checkMode(p.Child("mode"), f.Mode)
	r.checkUser(p.Child("user"), f.User)
	switch {
	case (f.FieldRef == nil) == (f.ResourceFieldRef == nil):
		r.addInvalid(p, f.Path, "must have exactly one of fieldRef and resourceFieldRef")
	case f.FieldRef != nil:
		r.fieldRef(p.Child("fieldRef"), f.FieldRef, volumeFields)
	default:
		r.requireText(p.Child("resourceFieldRef", "containerName"), f.ResourceFieldRef.ContainerName)
		r.resourceFieldRef(p.Child("resourceFieldRef"), f.ResourceFieldRef)
	}
}

func (r *review) checkCSI(p *field.Path, csi *v1.CSIVolumeSource) {
	at := p.Child("driver")
	if r.requireText(at, csi.Driver) {
		if len(csi.Driver) > 63 {
			r.errs = append(r.errs, field.TooLong(at, "", 63))
		}
		r.checkRule(at, strings.ToLower(csi.Driver), checkSubdomain)
	}
	if ref := csi.NodePublishSecretRef; ref != nil {
		r.checkName(p.Child("nodePublishSecretRef", "name"), ref.Name, checkSubdomain)
	}
}

// ephemeralClaims checks the names of the claims that a cluster would create for ephemeral volumes.
func (r *review) ephemeralClaims(p *field.Path) {
	made := map[string]bool{}
	for i, v := range r.spec.Volumes {
		if v.Ephemeral != nil && v.Name != "" && r.pod.Name != "" {
			name := r.pod.Name + "-" + v.Name
			made[name] = true
			for _, msg := range checkSubdomain(name) {
				r.addInvalid(p.Index(i).Child("name"), v.Name, fmt.Sprintf("claim %q: %s", name, msg))
			}
		}
	}
	for i, v := range r.spec.Volumes {
		if claim := v.PersistentVolumeClaim; claim != nil {
			r.failIf(made[claim.ClaimName], p.Index(i).Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not be a claim that is created for an ephemeral volume")
		}
	}
}
