// Package cluster runs a real control plane for tests: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, on a separate host (package machine). Cables connect
// machines to the control plane. Tests can cut the cables.
//
//	Main, in TestMain
//	Start(t) --> one Cluster for all tests of the program, started by the first
//	  |
//	  |   host "control"                      machine of a test
//	  |   etcd  apiserver :6443 <-+                islet
//	  |   controllers  scheduler  +-- bridge -- veth -- eth0
//	  |   fault proxies :7001.. <-+   10.97.0.1   |     10.97.0.2...
//	  |                                         Link: Cut, Silence, Bytes
//	  |
//	  +--> Node(t): a connected machine; islet on it bootstraps its certificate
//	  +--> Admin(): a client; Kubectl(t, ...): kubectl; both inside the host
//	  +--> Proxy(t): a proxy for the API server that can simulate faults
//
// StartVariant starts the control plane of another distribution instead, such as k3s (package k3s).
//
// kubeadm creates the certificates, the kubeconfigs and the RBAC rules for joining. The control
// plane runs in namespaces and on a tmpfs, which end with the test program.
package cluster
