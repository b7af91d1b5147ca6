package manifest

import (
	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// Default sets missing fields of a pod to their defaults. A second call changes nothing. See
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/.
func Default(pod *v1.Pod) {
	spec := &pod.Spec
	for _, c := range podspec.Containers(spec) {
		requestsFromLimits(&c.Resources)
	}
	defaultPodResources(spec)
	for _, c := range podspec.Containers(spec) {
		defaultContainer(c, spec.HostNetwork)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
	fill(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	fillZero(&spec.DNSPolicy, v1.DNSClusterFirst)
	fillZero(&spec.RestartPolicy, v1.RestartPolicyAlways)
	fillZero(&spec.SchedulerName, v1.DefaultSchedulerName)
	fill(&spec.SecurityContext, v1.PodSecurityContext{})
	fill(&spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	if *spec.TerminationGracePeriodSeconds < 0 {
		*spec.TerminationGracePeriodSeconds = 1
	}
	// serviceAccount is the former name of the field serviceAccountName. If both are set, serviceAccountName takes precedence.
	fillZero(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

func fill[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func fillZero[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

func defaultContainer(c *v1.Container, hostNetwork bool) {
	fillZero(&c.ImagePullPolicy, pullPolicy(c.Image))
	fillZero(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	fillZero(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		fillZero(&c.Ports[i].Protocol, v1.ProtocolTCP)
		if hostNetwork {
			fillZero(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				fill(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(probe)
	}
	if c.Lifecycle != nil {
		for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// pullPolicy returns the default pull policy for an image. It is Always for an image with the tag latest, or with neither a tag nor a
// digest.
func pullPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil { // the runtime reports an invalid name
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func defaultFieldRef(f *v1.ObjectFieldSelector) {
	if f != nil {
		fillZero(&f.APIVersion, "v1")
	}
}

func defaultProbe(p *v1.Probe) {
	if p == nil {
		return
	}
	fillZero(&p.TimeoutSeconds, 1)
	fillZero(&p.PeriodSeconds, 10)
	fillZero(&p.SuccessThreshold, 1)
	fillZero(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		fill(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *v1.HTTPGetAction) {
	if h != nil {
		fillZero(&h.Path, "/")
		fillZero(&h.Scheme, v1.URISchemeHTTP)
	}
}
