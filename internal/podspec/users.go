package podspec

import v1 "k8s.io/api/core/v1"

// OwnUsers says whether a pod is to have a user namespace of its own (KEP-127).
func OwnUsers(spec *v1.PodSpec) bool { return spec.HostUsers != nil && !*spec.HostUsers }
