package podspec

import v1 "k8s.io/api/core/v1"

// These are the kinds of namespaced objects that a pod may refer to.
const (
	ConfigMap = "ConfigMap"
	Secret    = "Secret"
	Claim     = "PersistentVolumeClaim"
)

// VisitReferences calls visit for every reference of a pod to a ConfigMap, Secret or
// PersistentVolumeClaim. A generic ephemeral volume is not a reference, because its claim is
// created for the pod.
func VisitReferences(spec *v1.PodSpec, visit func(kind, name string)) {
	addNamed := func(kind, name string) {
		if name != "" {
			visit(kind, name)
		}
	}
	for _, s := range spec.ImagePullSecrets {
		addNamed(Secret, s.Name)
	}
	for _, c := range Containers(spec) {
		addEnvironment(c, addNamed)
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.ConfigMap != nil:
			addNamed(ConfigMap, v.ConfigMap.Name)
		case v.Secret != nil:
			addNamed(Secret, v.Secret.SecretName)
		case v.PersistentVolumeClaim != nil:
			addNamed(Claim, v.PersistentVolumeClaim.ClaimName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					addNamed(ConfigMap, s.ConfigMap.Name)
				}
				if s.Secret != nil {
					addNamed(Secret, s.Secret.Name)
				}
			}
		}
	}
}

func addEnvironment(ctr *v1.Container, add func(kind, name string)) {
	for _, f := range ctr.EnvFrom {
		if f.ConfigMapRef != nil {
			add(ConfigMap, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			add(Secret, f.SecretRef.Name)
		}
	}
	for _, e := range ctr.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			add(ConfigMap, r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			add(Secret, r.Name)
		}
	}
}
