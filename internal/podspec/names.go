package podspec

import v1 "k8s.io/api/core/v1"

// The kinds of objects of its namespace that a pod may name.
const (
	ConfigMap = "ConfigMap"
	Secret    = "Secret"
	Claim     = "PersistentVolumeClaim"
)

// Names calls add for every ConfigMap, Secret and claim that a pod names, also for those
// that it names twice. A generic ephemeral volume names none: its claim is made for it.
func Names(spec *v1.PodSpec, add func(kind, name string)) {
	some := func(kind, name string) {
		if name != "" {
			add(kind, name)
		}
	}
	for _, s := range spec.ImagePullSecrets {
		some(Secret, s.Name)
	}
	for _, c := range Containers(spec) {
		environment(c, some)
	}
	for i := range spec.Volumes {
		switch v := &spec.Volumes[i]; {
		case v.ConfigMap != nil:
			some(ConfigMap, v.ConfigMap.Name)
		case v.Secret != nil:
			some(Secret, v.Secret.SecretName)
		case v.PersistentVolumeClaim != nil:
			some(Claim, v.PersistentVolumeClaim.ClaimName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					some(ConfigMap, s.ConfigMap.Name)
				}
				if s.Secret != nil {
					some(Secret, s.Secret.Name)
				}
			}
		}
	}
}

func environment(ctr *v1.Container, add func(kind, name string)) {
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
