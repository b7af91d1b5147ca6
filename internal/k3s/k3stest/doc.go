// Package k3stest is a server for tests that answers as a server of k3s does: its supervisor, and of its API server the Node of a client.
//
//	test --fields, hooks--> Server <--HTTPS-- k3s.Client, islet join, the agent
package k3stest
