package podtest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
)

// Option changes a pod that New builds.
type Option func(*v1.Pod)

// New returns a pod in the namespace default with the given name and a container "c". The given
// name is also the pod's UID.
func New(name string, options ...Option) *v1.Pod {
	p := &v1.Pod{}
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	for _, o := range options {
		o(p)
	}
	return p
}

// UID sets the pod's UID.
func UID(uid string) Option { return func(p *v1.Pod) { p.UID = types.UID(uid) } }

// Namespace sets the pod's namespace.
func Namespace(ns string) Option { return func(p *v1.Pod) { p.Namespace = ns } }

// Annotation adds an annotation.
func Annotation(key, value string) Option {
	return func(p *v1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[key] = value
	}
}

// Label adds a label.
func Label(key, value string) Option {
	return func(p *v1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[key] = value
	}
}

// Source sets the annotation that names the pod's source, such as keys.SourceFile.
func Source(source string) Option { return Annotation(keys.ConfigSource, source) }

// Node binds the pod to a node.
func Node(name string) Option { return func(p *v1.Pod) { p.Spec.NodeName = name } }

// ServiceAccount sets the pod's service account.
func ServiceAccount(name string) Option {
	return func(p *v1.Pod) { p.Spec.ServiceAccountName = name }
}

// Priority sets the pod's priority.
func Priority(n int32) Option { return func(p *v1.Pod) { p.Spec.Priority = &n } }

// RestartPolicy sets the pod's restart policy.
func RestartPolicy(policy v1.RestartPolicy) Option {
	return func(p *v1.Pod) { p.Spec.RestartPolicy = policy }
}

// GracePeriod sets the pod's termination grace period in seconds.
func GracePeriod(seconds int64) Option {
	return func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// Phase sets the phase in the pod's status.
func Phase(phase v1.PodPhase) Option { return func(p *v1.Pod) { p.Status.Phase = phase } }

// Containers replaces the pod's containers.
func Containers(all ...v1.Container) Option { return func(p *v1.Pod) { p.Spec.Containers = all } }

// Image sets the image of the last container.
func Image(ref string) Option { return func(p *v1.Pod) { lastContainer(p).Image = ref } }

// Requests sets the requests of the last container.
func Requests(list v1.ResourceList) Option {
	return func(p *v1.Pod) { lastContainer(p).Resources.Requests = list }
}

// Limits sets the limits of the last container.
func Limits(list v1.ResourceList) Option {
	return func(p *v1.Pod) { lastContainer(p).Resources.Limits = list }
}

// Volumes adds volumes.
func Volumes(all ...v1.Volume) Option {
	return func(p *v1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, all...) }
}

// Claims adds a volume for each PersistentVolumeClaim, with the claim's name.
func Claims(names ...string) Option {
	return func(p *v1.Pod) {
		for _, n := range names {
			source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: n}}
			Volumes(v1.Volume{Name: n, VolumeSource: source})(p)
		}
	}
}

// ConfigMaps adds a volume for each ConfigMap, with the ConfigMap's name.
func ConfigMaps(names ...string) Option {
	return func(p *v1.Pod) {
		for _, n := range names {
			source := v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: n}}}
			Volumes(v1.Volume{Name: n, VolumeSource: source})(p)
		}
	}
}

// List returns a list of resources. An empty quantity omits its resource.
func List(quantities map[v1.ResourceName]string) v1.ResourceList {
	list := v1.ResourceList{}
	for name, q := range quantities {
		if q != "" {
			list[name] = resource.MustParse(q)
		}
	}
	return list
}

// CPUAndMemory returns a list of resources with CPU and memory. An empty quantity omits its
// resource.
func CPUAndMemory(cpu, memory string) v1.ResourceList {
	return List(map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory})
}

func lastContainer(p *v1.Pod) *v1.Container { return &p.Spec.Containers[len(p.Spec.Containers)-1] }
