// Package remote contains end-to-end tests of nodes with an external runtime, which islet uses
// through a CRI socket. The tests run with two runtimes. One is the distribution's containerd
// (Debian 12 has 1.6, which neither sends events nor reports its cgroup driver). The other is a
// current containerd, which programs.sh builds from its Go module.
//
// The contract suite (runtime/remote) and the tests with a control plane (test/cluster/node) also
// run with both runtimes.
package remote
