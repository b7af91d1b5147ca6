package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkScheduling checks the fields that the scheduler uses, except the affinity.
func (r *review) checkScheduling(p *field.Path) {
	s := r.spec
	gates := map[string]bool{}
	for i, gate := range s.SchedulingGates {
		at := p.Child("schedulingGates").Index(i)
		r.checkRule(at.Child("name"), gate.Name, validation.IsQualifiedName)
		r.addUnique(at.Child("name"), gates, gate.Name)
	}
	if s.NodeName != "" && len(s.SchedulingGates) > 0 {
		r.addForbidden(p.Child("schedulingGates"), "cannot be set on a pod that already has a node, such as a static pod")
	}
	oneOfIf(r, p.Child("preemptionPolicy"), s.PreemptionPolicy, v1.PreemptLowerPriority, v1.PreemptNever)
	r.checkTolerations(p.Child("tolerations"), s.Tolerations)
	r.checkSpread(p.Child("topologySpreadConstraints"))
}

func (r *review) checkTolerations(p *field.Path, list []v1.Toleration) {
	for i, t := range list {
		at := p.Index(i)
		if t.Key != "" {
			r.checkLabelKey(at.Child("key"), t.Key)
		}
		r.failIf(t.Key == "" && t.Operator != v1.TolerationOpExists, at.Child("operator"), t.Operator, "must be Exists without a key")
		switch t.Operator {
		case v1.TolerationOpEqual, "":
			r.checkRule(at.Child("value"), t.Value, validation.IsValidLabelValue)
		case v1.TolerationOpExists:
			r.failIf(t.Value != "", at.Child("value"), t.Value, "must be empty with operator Exists")
		default:
			oneOf(r, at.Child("operator"), t.Operator, v1.TolerationOpEqual, v1.TolerationOpExists)
		}
		if t.Effect != "" {
			oneOf(r, at.Child("effect"), t.Effect, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)
		}
		r.failIf(t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute, at.Child("effect"), t.Effect,
			"must be NoExecute with tolerationSeconds")
	}
}

func (r *review) checkLabelKey(p *field.Path, key string) {
	r.errs = append(r.errs, metav1validation.ValidateLabelName(key, p)...)
}

func (r *review) checkSelector(p *field.Path, s *metav1.LabelSelector) {
	r.errs = append(r.errs, metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, p)...)
}

func (r *review) checkSpread(p *field.Path) {
	kinds := map[string]bool{}
	for i, c := range r.spec.TopologySpreadConstraints {
		at := p.Index(i)
		r.failIf(c.MaxSkew <= 0, at.Child("maxSkew"), c.MaxSkew, "must be greater than 0")
		r.requireText(at.Child("topologyKey"), c.TopologyKey)
		oneOf(r, at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, v1.DoNotSchedule, v1.ScheduleAnyway)
		r.addUnique(at, kinds, fmt.Sprintf("topologyKey %s, whenUnsatisfiable %s", c.TopologyKey, c.WhenUnsatisfiable))
		if c.MinDomains != nil {
			r.failIf(*c.MinDomains <= 0, at.Child("minDomains"), *c.MinDomains, "must be greater than 0")
			at := at.Child("minDomains")
			r.failIf(c.WhenUnsatisfiable != v1.DoNotSchedule, at, *c.MinDomains, "is only valid with whenUnsatisfiable DoNotSchedule")
		}
		oneOfIf(r, at.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy, v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)
		oneOfIf(r, at.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy, v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)
		r.labelKeys(at, c.MatchLabelKeys, nil, c.LabelSelector)
		r.checkSelector(at.Child("labelSelector"), c.LabelSelector)
	}
}

// labelKeys checks matchLabelKeys and mismatchLabelKeys. They are label keys whose values come from the labels of the pod.
func (r *review) labelKeys(p *field.Path, match, mismatch []string, s *metav1.LabelSelector) {
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", match}, {"mismatchLabelKeys", mismatch}} {
		if s == nil && len(list.keys) > 0 {
			r.addForbidden(p.Child(list.name), "needs labelSelector")
			continue
		}
		for i, key := range list.keys {
			r.checkLabelKey(p.Child(list.name).Index(i), key)
		}
	}
	for i, key := range match {
		at := p.Child("matchLabelKeys").Index(i)
		r.failIf(slices.Contains(mismatch, key), at, key, "must not also be in mismatchLabelKeys")
		r.failIf(s != nil && selectsTwice(s, key), at, key, "must not also be in labelSelector")
	}
}

// selectsTwice reports whether a selector contains a key more than once. A selector may contain a
// key of matchLabelKeys once, because the API server adds these keys to it.
func selectsTwice(s *metav1.LabelSelector, key string) bool {
	n := 0
	if _, found := s.MatchLabels[key]; found {
		n++
	}
	for _, e := range s.MatchExpressions {
		if e.Key == key {
			n++
		}
	}
	return n > 1
}

// checkAffinity checks the affinity of a pod to nodes and to other pods.
func (r *review) checkAffinity(p *field.Path) {
	a := r.spec.Affinity
	if a == nil {
		return
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	if n := a.NodeAffinity; n != nil {
		at := p.Child("nodeAffinity")
		if s := n.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
			terms := at.Child(required, "nodeSelectorTerms")
			if len(s.NodeSelectorTerms) == 0 {
				r.rejectMissing(terms, "")
			}
			for i, term := range s.NodeSelectorTerms {
				r.nodeTerm(terms.Index(i), term, true)
			}
		}
		for i, term := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			r.inRange(at.Child(preferred).Index(i).Child("weight"), int64(term.Weight), 1, 100)
			r.nodeTerm(at.Child(preferred).Index(i).Child("preference"), term.Preference, false)
		}
	}
	pods := func(at *field.Path, must []v1.PodAffinityTerm, rather []v1.WeightedPodAffinityTerm) {
		for i, term := range must {
			r.podTerm(at.Child(required).Index(i), term)
		}
		for i, term := range rather {
			r.inRange(at.Child(preferred).Index(i).Child("weight"), int64(term.Weight), 1, 100)
			r.podTerm(at.Child(preferred).Index(i).Child("podAffinityTerm"), term.PodAffinityTerm)
		}
	}
	if t := a.PodAffinity; t != nil {
		pods(p.Child("podAffinity"), t.RequiredDuringSchedulingIgnoredDuringExecution, t.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if t := a.PodAntiAffinity; t != nil {
		at := p.Child("podAntiAffinity")
		pods(at, t.RequiredDuringSchedulingIgnoredDuringExecution, t.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

// nodeTerm checks a term of a node selector. The values of a required term must be valid label values. For a preferred term, the caller
// passes false, and the values are not checked.
func (r *review) nodeTerm(p *field.Path, term v1.NodeSelectorTerm, labels bool) {
	for i, e := range term.MatchExpressions {
		at := p.Child("matchExpressions").Index(i)
		values := at.Child("values")
		switch e.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if len(e.Values) == 0 {
				r.rejectMissing(values, "operators In and NotIn need them")
			}
		case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
			if len(e.Values) > 0 {
				r.addForbidden(values, "cannot be combined with operators Exists and DoesNotExist")
			}
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			if len(e.Values) != 1 {
				r.rejectMissing(values, "operators Gt and Lt need exactly one")
			}
		default:
			r.addInvalid(at.Child("operator"), e.Operator, "is not a valid operator")
		}
		r.checkLabelKey(at.Child("key"), e.Key)
		for j, value := range e.Values {
			if labels {
				r.checkRule(values.Index(j), value, validation.IsValidLabelValue)
			}
		}
	}
	for i, e := range term.MatchFields {
		at := p.Child("matchFields").Index(i)
		switch e.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			if len(e.Values) != 1 {
				r.rejectMissing(at.Child("values"), "must be exactly one")
			}
		default:
			r.addInvalid(at.Child("operator"), e.Operator, "must be In or NotIn")
		}
		r.failIf(e.Key != metav1.ObjectNameField, at.Child("key"), e.Key, "must be "+metav1.ObjectNameField)
		for j, value := range e.Values {
			if e.Key == metav1.ObjectNameField {
				r.checkRule(at.Child("values").Index(j), value, checkSubdomain)
			}
		}
	}
}

func (r *review) podTerm(p *field.Path, term v1.PodAffinityTerm) {
	r.checkSelector(p.Child("labelSelector"), term.LabelSelector)
	r.checkSelector(p.Child("namespaceSelector"), term.NamespaceSelector)
	for i, namespace := range term.Namespaces {
		r.checkRule(p.Child("namespaces").Index(i), namespace, validation.IsDNS1123Label)
	}
	r.labelKeys(p, term.MatchLabelKeys, term.MismatchLabelKeys, term.LabelSelector)
	if strings.TrimSpace(term.TopologyKey) == "" {
		r.rejectMissing(p.Child("topologyKey"), "")
	} else {
		r.checkLabelKey(p.Child("topologyKey"), term.TopologyKey)
	}
}
