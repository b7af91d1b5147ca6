// Package translate converts a v1.Pod to the CRI's configurations, as a kubelet does. It is pure: facts about the
// node, the image and other objects are passed in.
//
//	v1.Pod, Node ----------------------------> Sandbox   --> api.PodSandboxConfig
//	v1.Container, Node, Image, env sources --> Container --> api.ContainerConfig
//
// Hooks add mounts, devices and the cgroup parent. The pod's addresses are read from its status, which the worker
// sets.
package translate
