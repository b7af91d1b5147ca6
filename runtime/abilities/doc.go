// Package abilities determines the optional features of an OCI runtime from its output and the
// version of the kernel:
//
//	crun, runc --"features"--> JSON --> Cache.Get(program) --> Ability
//	              (or --version, for versions without that command)
//
// The runtime handlers in the CRI's Status and in the Node object, the validation of containers and
// islet doctor use this package. The program can be configured, so its run time and the size of its
// output are limited.
//
// https://github.com/opencontainers/runtime-spec/blob/main/features.md
package abilities
