// Package selinux determines the SELinux labels of containers that request some (seLinuxOptions),
// as other CRI runtimes do, and labels the files of their mounts.
//
//	policy (lxc_contexts), security context, the pod's level --> Host --Labels--> of the process, of its files
//	                                                                 --Relabel--> a volume's files
//
// A container that requests none is not labelled, as with containerd's defaults. The OCI runtime
// sets the process's label, and the kernel enforces it.
//
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#assign-selinux-labels-to-a-container
package selinux
