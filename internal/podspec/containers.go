package podspec

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// A Kind classifies a container by the time at which it runs.
type Kind int

// These are the kinds, in the order in which their containers start.
const (
	Init      Kind = iota // runs to its end before the next container starts
	Sidecar               // starts among the init containers and runs as long as the pod
	Main                  // runs at the same time as the other main containers
	Ephemeral             // added to a running pod; it has no resources, ports or probes
)

// Containers returns every container of a pod with its kind, in the order in which they start. The
// pointers refer to the spec itself, so a write through them changes the spec.
func Containers(spec *v1.PodSpec) iter.Seq2[Kind, *v1.Container] {
	return func(yield func(Kind, *v1.Container) bool) {
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			kind := Init
			if IsSidecar(c) {
				kind = Sidecar
			}
			if !yield(kind, c) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(Main, &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			if !yield(Ephemeral, (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// Find returns the container with the given name, and its kind. The container is nil if the pod has
// no container with this name.
func Find(spec *v1.PodSpec, name string) (Kind, *v1.Container) {
	for kind, c := range Containers(spec) {
		if c.Name == name {
			return kind, c
		}
	}
	return 0, nil
}

// IsSidecar reports whether an init container is a sidecar, which runs as long as its pod.
// https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Statuses returns the status of every container of a pod, in the order of Containers.
func Statuses(st *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return func(yield func(*v1.ContainerStatus) bool) {
		for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// NextAttempt returns the number of the next attempt of a container of which the runtime has lost the records. The argument is the last
// status of the container. If it contains an ID, the runtime had a record at that time, and its number is in use.
func NextAttempt(st *v1.ContainerStatus) int32 {
	if st.ContainerID == "" {
		return st.RestartCount
	}
	return st.RestartCount + 1
}

// PermanentStatuses returns the status of every container but the ephemeral ones. A pod is not worse because a debugging container, which
// cannot be removed, does not run.
func PermanentStatuses(st *v1.PodStatus) iter.Seq[*v1.ContainerStatus] {
	return Statuses(&v1.PodStatus{InitContainerStatuses: st.InitContainerStatuses, ContainerStatuses: st.ContainerStatuses})
}

// IsTrue reports whether an optional field is set to true.
func IsTrue(b *bool) bool { return b != nil && *b }
