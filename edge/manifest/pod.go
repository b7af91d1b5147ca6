package manifest

import (
	"math"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkLifetime checks the fields that limit the lifetime of a pod and its containers.
func (r *review) checkLifetime(p *field.Path) {
	s := r.spec
	oneOf(r, p.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if s.ActiveDeadlineSeconds != nil {
		r.inRange(p.Child("activeDeadlineSeconds"), *s.ActiveDeadlineSeconds, 1, math.MaxInt32)
	}
	if len(s.EphemeralContainers) > 0 {
		r.addForbidden(p.Child("ephemeralContainers"), "can only be added to a pod that runs")
	}
	for i, gate := range s.ReadinessGates {
		r.checkRule(p.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName)
	}
}

// checkReferences checks the names by which the spec refers to other objects.
func (r *review) checkReferences(p *field.Path) {
	s := r.spec
	r.errs = append(r.errs, metav1validation.ValidateLabels(s.NodeSelector, p.Child("nodeSelector"))...)
	if s.NodeName != "" {
		r.checkRule(p.Child("nodeName"), s.NodeName, checkSubdomain)
	}
	if s.ServiceAccountName != "" {
		for _, msg := range apivalidation.ValidateServiceAccountName(s.ServiceAccountName, false) {
			r.addInvalid(p.Child("serviceAccountName"), s.ServiceAccountName, msg)
		}
	}
	if s.PriorityClassName != "" {
		r.checkRule(p.Child("priorityClassName"), s.PriorityClassName, checkSubdomain)
	}
	if s.RuntimeClassName != nil {
		r.checkRule(p.Child("runtimeClassName"), *s.RuntimeClassName, checkSubdomain)
	}
	if group := s.SchedulingGroup; group != nil {
		at := p.Child("schedulingGroup", "podGroupName")
		if group.PodGroupName == nil {
			r.rejectMissing(at, "")
		} else {
			r.checkRule(at, *group.PodGroupName, checkSubdomain)
		}
	}
}

// checkClaims checks resource claims (dynamic resource allocation).
func (r *review) checkClaims(p *field.Path) {
	seen := map[string]bool{}
	for i, claim := range r.spec.ResourceClaims {
		at := p.Index(i)
		r.checkName(at.Child("name"), claim.Name, validation.IsDNS1123Label)
		r.addUnique(at.Child("name"), seen, claim.Name)
		if (claim.ResourceClaimName == nil) == (claim.ResourceClaimTemplateName == nil) {
			r.addInvalid(at, claim.Name, "must have exactly one of resourceClaimName and resourceClaimTemplateName")
		}
		if claim.ResourceClaimName != nil {
			r.checkRule(at.Child("resourceClaimName"), *claim.ResourceClaimName, checkSubdomain)
		}
		if claim.ResourceClaimTemplateName != nil {
			r.checkRule(at.Child("resourceClaimTemplateName"), *claim.ResourceClaimTemplateName, checkSubdomain)
		}
	}
}

// hostUsers checks that a pod with a user namespace uses neither a namespace of the host nor block devices.
func (r *review) hostUsers(p *field.Path) {
	s := r.spec
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	const detail = "cannot be combined with a user namespace (hostUsers: false)"
	for _, shared := range []struct {
		with bool
		name string
	}{{s.HostNetwork, "hostNetwork"}, {s.HostPID, "hostPID"}, {s.HostIPC, "hostIPC"}} {
		if shared.with {
			r.addForbidden(p.Child(shared.name), detail)
		}
	}
	eachContainer(s, func(p *field.Path, c *v1.Container) {
		if len(c.VolumeDevices) > 0 {
			r.addForbidden(p.Child("volumeDevices"), detail)
		}
	})
}
