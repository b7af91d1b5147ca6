package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (r *review) checkEnv(p *field.Path, env []v1.EnvVar) {
	for i, e := range env {
		r.checkName(p.Index(i).Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		if e.ValueFrom != nil {
			r.envSource(p.Index(i).Child("valueFrom"), e.ValueFrom)
			r.failIf(e.Value != "", p.Index(i).Child("valueFrom"), e.Value, "must not be set together with value")
		}
	}
}

func (r *review) envSource(p *field.Path, from *v1.EnvVarSource) {
	sources := 0
	if from.FieldRef != nil {
		sources++
		r.fieldRef(p.Child("fieldRef"), from.FieldRef, envFields)
	}
	if from.ResourceFieldRef != nil {
		sources++
		r.resourceFieldRef(p.Child("resourceFieldRef"), from.ResourceFieldRef)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		r.keyRef(p.Child("configMapKeyRef"), ref.Name, ref.Key)
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		r.keyRef(p.Child("secretKeyRef"), ref.Name, ref.Key)
	}
	if from.FileKeyRef != nil {
		sources++
		r.fileKeyRef(p.Child("fileKeyRef"), from.FileKeyRef)
	}
	r.failIf(sources != 1, p, "", "must have exactly one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef and fileKeyRef")
}

func (r *review) keyRef(p *field.Path, name, key string) {
	r.checkRule(p.Child("name"), name, checkSubdomain)
	r.checkName(p.Child("key"), key, validation.IsConfigMapKey)
}

// fileKeyRef checks a variable whose value is read from a file that a container has written (KEP-3721).
func (r *review) fileKeyRef(p *field.Path, ref *v1.FileKeySelector) {
	r.checkName(p.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)
	r.checkName(p.Child("volumeName"), ref.VolumeName, validation.IsDNS1123Label)
	if r.requireText(p.Child("path"), ref.Path) {
		r.rejectBacksteps(p.Child("path"), ref.Path)
	}
	if v := r.volumes[ref.VolumeName]; v == nil {
		r.errs = append(r.errs, field.NotFound(p.Child("volumeName"), ref.VolumeName))
	} else {
		r.failIf(v.EmptyDir == nil, p.Child("volumeName"), ref.VolumeName, "must be an emptyDir volume")
	}
}

func (r *review) envFrom(p *field.Path, sources []v1.EnvFromSource) {
	for i, from := range sources {
		at := p.Index(i)
		if from.Prefix != "" {
			r.checkRule(at.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName)
		}
		if from.ConfigMapRef != nil {
			r.checkName(at.Child("configMapRef", "name"), from.ConfigMapRef.Name, subdomainPrefix)
		}
		if from.SecretRef != nil {
			r.checkName(at.Child("secretRef", "name"), from.SecretRef.Name, subdomainPrefix)
		}
		r.failIf((from.ConfigMapRef == nil) == (from.SecretRef == nil), at, "", "must have exactly one of configMapRef and secretRef")
	}
}

// subdomainPrefix is the rule for a prefix of a subdomain name, which may end with a dash.
func subdomainPrefix(name string) []string {
	if len(name) > 1 && strings.HasSuffix(name, "-") {
		name = name[:len(name)-1] + "a"
	}
	return checkSubdomain(name)
}

var (
	envFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
	volumeFields   = []string{"metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid"}
	resourceFields = []string{"limits.cpu", "limits.memory", "limits.ephemeral-storage",
		"requests.cpu", "requests.memory", "requests.ephemeral-storage"}
)

// fieldRef checks a reference to a field of the pod, such as metadata.labels['app'].
func (r *review) fieldRef(p *field.Path, ref *v1.ObjectFieldSelector, fields []string) {
	at := p.Child("fieldPath")
	r.failIf(ref.APIVersion != "v1", p.Child("apiVersion"), ref.APIVersion, "must be v1")
	if !r.requireText(at, ref.FieldPath) {
		return
	}
	path := ref.FieldPath
	if path == "spec.host" { // the field's name in the first version of the API
		path = "spec.nodeName"
	}
	name, key, subscript := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	switch {
	case !subscript || name == "" || !strings.HasSuffix(path, "']"):
		if !slices.Contains(fields, path) {
			r.errs = append(r.errs, field.NotSupported(at, ref.FieldPath, fields))
		}
	case name == "metadata.annotations":
		r.checkRule(at, strings.ToLower(key), validation.IsQualifiedName)
	case name == "metadata.labels":
		r.checkRule(at, key, validation.IsQualifiedName)
	default:
		r.addInvalid(at, ref.FieldPath, "only labels and annotations can be picked by key")
	}
}

// resourceFieldRef checks a reference to a resource of a container.
func (r *review) resourceFieldRef(p *field.Path, ref *v1.ResourceFieldSelector) {
	name := ref.Resource
	withPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix+v1.ResourceHugePagesPrefix) }
	hugepages := withPrefix("limits.") || withPrefix("requests.")
	if !hugepages {
		oneOf(r, p.Child("resource"), name, resourceFields...)
	}
	if ref.Divisor.IsZero() {
		return
	}
	divisors := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if strings.HasSuffix(name, ".cpu") {
		divisors = []string{"1m", "1"}
	}
	if hugepages || slices.Contains(resourceFields, name) {
		oneOf(r, p.Child("divisor"), ref.Divisor.String(), divisors...)
	}
}
