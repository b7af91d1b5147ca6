// Package upstream lists the metrics that a kubelet serves to Prometheus, with names, types, labels
// and stability. It reads them from the modules of Kubernetes and cAdvisor. The list is stored in
// agent/pod/figures/testdata. A test there compares islet's metrics with it.
package upstream
