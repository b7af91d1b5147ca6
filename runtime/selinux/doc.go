// Package selinux determines the SELinux labels of containers, like other CRI runtimes, and
// relabels volumes.
//
//	policy (lxc_contexts), seLinuxOptions, level of the pod --> Host --Labels--> process and files of a container
//	                                                                 --Relabel--> files of a volume
//
// A container without seLinuxOptions gets no label, as with containerd's defaults. The OCI runtime
// sets the label of the process, and the kernel enforces it.
//
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#assign-selinux-labels-to-a-container
package selinux
