// Package k3s speaks the protocol with which an agent of k3s joins its server: the requests to the server's supervisor, and the files that
// a node keeps afterwards.
//
//	token --hash of the CA--> /cacerts --CA--> Client --/v1-k3s/config, apiservers--------> Settings, addresses
//	                                             |------ /v1-k3s/client-ca.crt, server-ca.crt --> Directory
//	password, name, addresses, a new key --------'------ /v1-k3s/*-kubelet.crt ----> Pair ------> Directory
//
// The command islet join uses the package once, with a token. The agent (edge/supervisor) uses it to renew the certificates, with the
// node's certificate. Each answer of the server is limited in size and time, and is checked before a file is written. The requests are
// the formats of k3s 1.26 and later: see https://docs.k3s.io/cli/token and the packages pkg/clientaccess, pkg/agent/config and
// pkg/server/handlers of k3s.
package k3s
