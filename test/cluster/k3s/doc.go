// Package k3s contains a server that speaks to nodes as a k3s server of 1.33 and 1.34 does. It is for tests: its handlers follow k3s'
// public sources (github.com/k3s-io/k3s, the branches release-1.33 and release-1.34), whose files the comments name. The API server behind
// it and the server's side of the tunnel (github.com/rancher/remotedialer) are the real ones. It has not been compared with a running k3s:
// k3s' module is not available from Go's module proxy, and the environment of the tests reaches no registry that has its image.
//
//	node                       control plane's host
//	 |                          Server :6443
//	 |-- /cacerts, /ping ------> answers to all
//	 |-- /v1-k3s/*.crt --------> authenticate -> node's password -> certificate
//	 |-- /v1-k3s/connect ------> authenticate -> remotedialer.Server <--+
//	 |-- all other paths ------> kube-apiserver 127.0.0.1:6444          | Dialer(node)
//	                                |                                   |
//	                                +-- CONNECT node:10250 -> Server ---+
//
// The server can also lie: Instead replaces the answer of a path, and lies.go has answers that a client must survive. Start starts the
// server with a whole control plane (package cluster).
//
// This server lacks the join of further servers, the paths for administrators, etcd, the registry mirror, and the controllers of k3s.
package k3s
