// Package upstream lists what a kubelet serves to Prometheus, from Kubernetes' and
// cAdvisor's own modules: names, types, labels and stability. The list is kept in
// agent/pod/figures/testdata, where islet's names are compared with it.
package upstream
