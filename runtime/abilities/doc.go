// Package abilities determines the optional features of an OCI runtime from its output and the
// kernel's version:
//
//	crun, runc --"features"--> JSON --> Cache.Get(program) --> Ability
//	              (or --version, for versions without that command)
//
// The CRI's Status (its runtime handlers), the validation of containers, the Node object and islet
// doctor all use this package. It runs a program once for each version of its file. A user can
// configure any program, so the time and the size of its output are limited.
//
// https://github.com/opencontainers/runtime-spec/blob/main/features.md
package abilities
