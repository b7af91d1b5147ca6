// Package cgroup makes the cgroups above containers, as the kubelet lays them out:
//
//	<root>/kubepods                       shares of all CPUs
//	<root>/kubepods/pod<uid>              Guaranteed
//	<root>/kubepods/burstable/pod<uid>    shares: the sum of its pods' requests
//	<root>/kubepods/besteffort/pod<uid>   least shares
//
// or the slices of those names with the systemd driver. Pods joins a pod's life as
// a hook: Prepare makes the pod's cgroup with its limits, Sandbox tells the runtime
// to put containers there, Release kills what is left in it and removes it.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos
package cgroup
