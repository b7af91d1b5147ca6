// Package translate turns a v1.Pod into the CRI's configurations, as a kubelet
// does. It is pure: what it needs of the node, of the image and of other objects
// is passed in.
//
//	v1.Pod, Node ----------------------------> Sandbox   --> api.PodSandboxConfig
//	v1.Container, Node, Image, env sources --> Container --> api.ContainerConfig
//
// Mounts, devices and the cgroup parent are not its business: hooks add them.
// The pod's addresses are read from its status, which the worker fills in.
package translate
