// Package upstream lists the metrics that a kubelet serves to Prometheus, with names, types, labels
// and stability. It reads them from Kubernetes' and cAdvisor's own modules. The list is in
// agent/pod/figures/testdata, where a test compares islet's names with it.
package upstream
