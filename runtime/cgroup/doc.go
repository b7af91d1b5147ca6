// Package cgroup creates the cgroups above the containers, in the kubelet's layout:
//
//	<root>/kubepods                       shares of all CPUs
//	<root>/kubepods/pod<uid>              Guaranteed
//	<root>/kubepods/burstable/pod<uid>    shares: the sum of its pods' requests
//	<root>/kubepods/besteffort/pod<uid>   least shares
//
// With the systemd driver they are slices of the same names. Pods implements a hook for the life of
// a pod. Prepare creates the pod's cgroup with its limits. Sandbox sets the cgroup in the sandbox's
// configuration. Release kills the remaining processes and removes the cgroup.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos
package cgroup
