// Package k3s contains a server that speaks to nodes as a k3s server of 1.33 and 1.34 does. It is for tests: its handlers follow k3s'
// public sources (github.com/k3s-io/k3s, the branches release-1.33 and release-1.34), and comments name the source files. The API server
// behind it and the server's side of the tunnel (github.com/rancher/remotedialer) are the real ones. It has not been compared with a
// running k3s: k3s' module is not available from Go's module proxy, and the test environment cannot access a registry with its image.
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
// The server can also return invalid responses: Instead replaces the response of a path, and lies.go contains malformed responses that a
// client must handle. Start starts the server with a whole control plane (package cluster).
//
// This server does not implement: joining further servers, the paths for administrators, etcd, the registry mirror, and the k3s
// controllers.
package k3s
