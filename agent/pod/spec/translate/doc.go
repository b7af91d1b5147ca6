// Package translate converts a v1.Pod to the CRI's configurations, in the same way as a kubelet. It is pure: the
// caller passes the facts about the node, the image and other objects.
//
//	v1.Pod, Node ----------------------------> Sandbox   --> api.PodSandboxConfig
//	v1.Container, Node, Image, env sources --> Container --> api.ContainerConfig
//
// Hooks add mounts, devices and the cgroup parent. The pod's addresses are read from its status, which the worker
// sets.
package translate
