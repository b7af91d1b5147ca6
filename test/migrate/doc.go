// Package migrate contains the tests of a migration from other programs to islet and back. They run Debian's podman and containerd, and a
// kubelet, in a system of package system. They follow the steps that islet doctor --migrate prints, and the commands of docs/from-podman.md
// and docs/from-kubelet.md.
//
//	podman or kubelet with pods --> report or page --> islet with the same pods and data --> the way back --> as before
package migrate
