// Package cgroup creates the cgroups above containers, in the kubelet's layout:
//
//	<root>/kubepods                       shares of all CPUs
//	<root>/kubepods/pod<uid>              Guaranteed
//	<root>/kubepods/burstable/pod<uid>    shares: the sum of its pods' requests
//	<root>/kubepods/besteffort/pod<uid>   least shares
//
// or slices of the same names with the systemd driver. Pods implements a hook of pods' lives:
// Prepare creates the pod's cgroup with its limits, Sandbox sets the cgroup in the sandbox's
// configuration, Release kills remaining processes and removes the cgroup.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos
package cgroup
