// Package abilities knows what an OCI runtime can do, by what it says itself:
//
//	crun, runc --"features"--> JSON --> Known.Of(program) --> Ability
//	              (or --version, for those from before that command)
//
// and what the kernel adds to it. It is the only place that asks: what the CRI's Status
// says of runtime handlers, what containers are refused, the Node object and islet
// doctor all follow from it. A program is asked once for each version of it that lies on
// the disk. It may be anything that somebody has configured: its answer is bounded in
// time and size.
//
// https://github.com/opencontainers/runtime-spec/blob/main/features.md
package abilities
