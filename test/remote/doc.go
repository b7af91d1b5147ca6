// Package remote holds end-to-end tests of nodes whose containers run in another runtime
// than islet's own, behind its CRI socket: with containerd of the distribution (Debian 12
// has 1.6, which knows neither events nor its cgroup driver), and with a current one that
// programs.sh builds from its Go module.
//
// The same contract suite and the tests with a control plane run with them too: see
// runtime/remote and test/cluster/node.
package remote
