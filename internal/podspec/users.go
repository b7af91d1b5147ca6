package podspec

import v1 "k8s.io/api/core/v1"

// OwnUsers reports whether a pod gets its own user namespace (KEP-127).
func OwnUsers(spec *v1.PodSpec) bool { return spec.HostUsers != nil && !*spec.HostUsers }
