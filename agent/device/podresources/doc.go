// Package podresources serves a kubelet's pod resources API (v1), which reports the devices,
// claims, exclusive CPUs and memory of containers to monitoring programs on the machine.
//
//	program --<root-dir>/pod-resources/kubelet.sock--> List, Get, GetAllocatableResources
//	                                                       '--> pods, devices, claims
//
// CPUs and memory are reported only for containers with exclusive CPUs or assigned memory.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
package podresources
