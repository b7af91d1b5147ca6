package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns the errors that an API server with default feature gates would report for a new pod. The pod must already have its
// defaults.
func Validate(pod *v1.Pod) field.ErrorList {
	r := &review{pod: pod, spec: &pod.Spec, volumes: make(map[string]*v1.Volume, len(pod.Spec.Volumes))}
	r.checkMetadata(field.NewPath("metadata"))
	spec := field.NewPath("spec")
	r.volumeList(spec.Child("volumes"))
	r.checkContainers(spec)
	r.podResources(spec.Child("resources"))
	r.checkClaims(spec.Child("resourceClaims"))
	r.checkLifetime(spec)
	r.checkReferences(spec)
	r.hostNames(spec)
	r.checkDNS(spec)
	r.hostPorts(spec)
	r.checkScheduling(spec)
	r.checkAffinity(spec.Child("affinity"))
	r.podSecurity(spec.Child("securityContext"))
	r.hostUsers(spec)
	r.checkSystem(spec)
	r.checkAnnotations(field.NewPath("metadata", "annotations"))
	return r.errs
}

// A review collects the errors of one pod or object. Its methods are the validation rules. Each file contains the rules for one subject.
type review struct {
	pod     *v1.Pod
	spec    *v1.PodSpec
	volumes map[string]*v1.Volume // by name
	errs    field.ErrorList
}

func (r *review) rejectMissing(p *field.Path, detail string) {
	r.errs = append(r.errs, field.Required(p, detail))
}

// addInvalid is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *review) addInvalid(p *field.Path, value any, detail string) {
	r.errs = append(r.errs, field.Invalid(p, value, detail))
}

// addForbidden is not inlined, because the copies at its many calls would enlarge the program.
//
//go:noinline
func (r *review) addForbidden(p *field.Path, detail string) {
	r.errs = append(r.errs, field.Forbidden(p, detail))
}

func (r *review) addDuplicate(p *field.Path, value any) {
	r.errs = append(r.errs, field.Duplicate(p, value))
}

// failIf adds an error if the condition bad is true.
func (r *review) failIf(bad bool, p *field.Path, value any, detail string) {
	if bad {
		r.addInvalid(p, value, detail)
	}
}

// requireText adds an error if text is empty. It reports whether text is not empty.
func (r *review) requireText(p *field.Path, text string) bool {
	if text == "" {
		r.rejectMissing(p, "")
	}
	return text != ""
}

// checkName checks that a name is not empty, and that it is valid according to a rule of package apimachinery.
func (r *review) checkName(p *field.Path, name string, rule func(string) []string) {
	if r.requireText(p, name) {
		r.checkRule(p, name, rule)
	}
}

// checkRule checks a value with a rule of package apimachinery, and adds the errors that the rule returns.
func (r *review) checkRule(p *field.Path, value string, rule func(string) []string) {
	for _, msg := range rule(value) {
		r.addInvalid(p, value, msg)
	}
}

func (r *review) inRange(p *field.Path, value, low, high int64) {
	if value < low || value > high {
		r.addInvalid(p, value, validation.InclusiveRangeError(int(low), int(high)))
	}
}

func (r *review) notNegative(p *field.Path, value int64) {
	r.failIf(value < 0, p, value, "must not be negative")
}

func (r *review) notNegativeQuantity(p *field.Path, q resource.Quantity) {
	r.failIf(q.Sign() < 0, p, q.String(), "must not be negative")
}

// oneOf adds an error if a value is not one of the permitted values.
func oneOf[T ~string](r *review, p *field.Path, value T, values ...T) {
	switch {
	case slices.Contains(values, value):
	case value == "":
		r.rejectMissing(p, "")
	default:
		r.errs = append(r.errs, field.NotSupported(p, value, values))
	}
}

// oneOfIf is like oneOf, for an optional value.
func oneOfIf[T ~string](r *review, p *field.Path, value *T, values ...T) {
	if value != nil && !slices.Contains(values, *value) {
		r.errs = append(r.errs, field.NotSupported(p, *value, values))
	}
}

// addUnique adds an error if a name occurs for the second time. It records the name in the map of the names so far.
func (r *review) addUnique(p *field.Path, seen map[string]bool, name string) {
	if name == "" {
		return
	}
	if seen[name] {
		r.addDuplicate(p, name)
	}
	seen[name] = true
}

// checkSubdomain is the rule for the names of API objects.
func checkSubdomain(name string) []string { return apivalidation.NameIsDNSSubdomain(name, false) }

func (r *review) checkMetadata(p *field.Path) {
	meta := &r.pod.ObjectMeta
	r.errs = append(r.errs, apivalidation.ValidateObjectMeta(meta, true, apivalidation.NameIsDNSSubdomain, p)...)
	for i, name := range meta.Finalizers {
		standard := slices.Contains([]string{"kubernetes", "orphan", "foregroundDeletion"}, name)
		r.failIf(!standard && !strings.Contains(name, "/"), p.Child("finalizers").Index(i), name,
			"must be a standard name or have a domain before a slash")
	}
}
