// Package podresources tells monitoring programs on the machine which devices the containers
// of pods have, as a kubelet does, by its pod resources API (v1).
//
//	program --<root-dir>/pod-resources/kubelet.sock--> List, Get, GetAllocatableResources
//	                                                       '--> pods, devices, claims
//
// CPUs and memory are told of containers that have some of their own.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
package podresources
