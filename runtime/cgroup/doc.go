// Package cgroup creates the cgroups of pods and QoS classes, in the layout of a kubelet:
//
//	<root>/kubepods                       CPU shares of the allocatable CPUs
//	<root>/kubepods/pod<uid>              Guaranteed
//	<root>/kubepods/burstable/pod<uid>    CPU shares: sum of the pods' requests
//	<root>/kubepods/besteffort/pod<uid>   minimum CPU shares
//
// With the systemd driver, the cgroups are slices with corresponding names. Pods implements the
// hooks of a pod: Prepare creates the cgroup of the pod with its limits, Sandbox sets the cgroup
// parent of the sandbox, and Release kills the remaining processes and removes the cgroup.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos
package cgroup
