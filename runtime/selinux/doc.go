// Package selinux determines the SELinux labels of containers, as other CRI runtimes do, and labels
// the files of their mounts.
//
//	policy (lxc_contexts), security context, the pod's level --> Host --Labels--> of the process, of its files
//	                                                                 --Relabel--> a volume's files
//
// A container that requests no label with seLinuxOptions gets none, as with containerd's defaults.
// The OCI runtime sets the label of the process, and the kernel enforces it.
//
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#assign-selinux-labels-to-a-container
package selinux
