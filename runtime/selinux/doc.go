// Package selinux says which SELinux labels a container gets that asks for some
// (seLinuxOptions), as CRI runtimes have it, and labels the files that it is given.
//
//	policy (lxc_contexts), security context, the pod's level --> Host --Labels--> of the process, of its files
//	                                                                 --Relabel--> a volume's files
//
// A container that asks for none is not labelled, as with containerd's defaults. The
// OCI runtime gives the process its label, and the kernel enforces it.
//
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#assign-selinux-labels-to-a-container
package selinux
