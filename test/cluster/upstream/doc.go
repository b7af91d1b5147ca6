// Package upstream lists what a kubelet serves to Prometheus, from Kubernetes' and cAdvisor's own
// modules: names, types, labels and stability. The list is in agent/pod/figures/testdata, where a
// test compares islet's names with it.
package upstream
