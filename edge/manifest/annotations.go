package manifest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/inputweight"
)

// Parts of the former annotations for seccomp and AppArmor. These annotations have no effect any more, but must not contradict the fields
// that have replaced them.
const (
	appArmor  = v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	localhost = "localhost/"
)

// maxTolerations is the maximum size of the decoded tolerations of an annotation, in bytes.
const maxTolerations = 1 << 20

// checkAnnotations checks the annotations that Kubernetes defines.
func (r *review) checkAnnotations(p *field.Path) {
	annotations := r.pod.Annotations
	if _, mirror := annotations[v1.MirrorPodAnnotationKey]; mirror && r.spec.NodeName == "" {
		r.addInvalid(p.Key(v1.MirrorPodAnnotationKey), "", "a mirror pod needs spec.nodeName")
	}
	if cost, found := annotations[v1.PodDeletionCost]; found {
		_, err := strconv.ParseInt(cost, 10, 32)
		r.failIf(err != nil || cost[0] == '+' || cost[0] == '0' && cost != "0", p.Key(v1.PodDeletionCost), cost,
			"must be a 32 bit number")
	}
	if text := annotations[v1.TolerationsAnnotationKey]; text != "" {
		at := p.Key(v1.TolerationsAnnotationKey)
		var list []v1.Toleration
		err := inputweight.JSON([]byte(text), &list, maxTolerations)
		if err == nil {
			err = json.Unmarshal([]byte(text), &list)
		}
		if err != nil {
			r.addInvalid(at, text, err.Error())
		}
		r.checkTolerations(at, list)
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if key == v1.SeccompPodAnnotationKey || strings.HasPrefix(key, v1.SeccompContainerAnnotationKeyPrefix) {
			r.seccompAnnotation(p.Key(key), annotations[key])
		}
		if name, ok := strings.CutPrefix(key, appArmor); ok {
			r.appArmorAnnotation(p.Key(key), name, annotations[key])
		}
	}
	r.annotationsAgree()
}

func (r *review) seccompAnnotation(p *field.Path, value string) {
	if file, ok := strings.CutPrefix(value, localhost); ok {
		r.checkDescending(p, file)
		return
	}
	r.failIf(!slices.Contains([]string{"runtime/default", "docker/default", "unconfined"}, value), p, value, "is not a seccomp profile")
}

func (r *review) appArmorAnnotation(p *field.Path, container, value string) {
	exists := false
	eachContainer(r.spec, func(_ *field.Path, c *v1.Container) { exists = exists || c.Name == container })
	r.failIf(!exists, p, container, "there is no such container")
	r.failIf(value != "" && value != "runtime/default" && value != "unconfined" && !strings.HasPrefix(value, localhost), p, value,
		"is not an AppArmor profile")
}

// annotationsAgree checks that the annotations for seccomp and AppArmor agree with the fields.
func (r *review) annotationsAgree() {
	spec := field.NewPath("spec")
	compare := func(p *field.Path, key, kind string, file *string) {
		value, found := r.pod.Annotations[key]
		agree := true
		switch kind {
		case "Unconfined":
			agree = value == "unconfined"
		case "RuntimeDefault":
			agree = value == "runtime/default" || value == "docker/default" && !strings.HasPrefix(key, appArmor)
		case "Localhost":
			agree = file != nil && value == localhost+*file
		}
		if found && !agree {
			r.addForbidden(p.Child("type"), "must agree with the annotation "+key)
		}
	}
	pod := r.spec.SecurityContext
	if pod != nil && pod.SeccompProfile != nil {
		profile := pod.SeccompProfile
		compare(spec.Child("securityContext", "seccompProfile"), v1.SeccompPodAnnotationKey, string(profile.Type), profile.LocalhostProfile)
	}
	windows := r.spec.OS != nil && r.spec.OS.Name == v1.Windows
	eachContainer(r.spec, func(p *field.Path, c *v1.Container) {
		p = p.Child("securityContext")
		if sc := c.SecurityContext; sc != nil && sc.SeccompProfile != nil {
			key := v1.SeccompContainerAnnotationKeyPrefix + c.Name
			compare(p.Child("seccompProfile"), key, string(sc.SeccompProfile.Type), sc.SeccompProfile.LocalhostProfile)
		}
		var profile *v1.AppArmorProfile
		if pod != nil {
			profile = pod.AppArmorProfile
		}
		if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
			profile = sc.AppArmorProfile
		}
		if profile != nil && !windows {
			compare(p.Child("appArmorProfile"), appArmor+c.Name, string(profile.Type), profile.LocalhostProfile)
		}
	})
}
