// Package abilities determines what an OCI runtime supports, from its own output and the kernel's
// version:
//
//	crun, runc --"features"--> JSON --> Known.Of(program) --> Ability
//	              (or --version, for versions without that command)
//
// It is the only place that does so. The runtime handlers in the CRI's Status, the checks of
// containers, the Node object and islet doctor all use it. A program runs once for each version of
// its file. Because a user may configure any program, its output is limited in time and size.
//
// https://github.com/opencontainers/runtime-spec/blob/main/features.md
package abilities
