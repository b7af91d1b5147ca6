package cluster

import (
	"fmt"
	"net"

	"github.com/islet-edge/islet/test/machine"
)

// Dir is the path of the control plane's directory inside its mount namespace.
const Dir = dir

// Address is the address of the control plane's host in the network of the machines.
const Address = gateway

// A Variant describes how the control plane of a distribution differs from kubeadm's. The zero Variant is kubeadm's control plane.
type Variant struct {
	// Certify creates super-admin.conf, controller-manager.conf, scheduler.conf and the files of the flags below. nil means kubeadm.
	Certify func(*Cluster) error
	// APIServer and Controllers are flags after kubeadm's. A later flag replaces an earlier one.
	APIServer, Controllers []string
	// Serve starts a server in front of the API server. nil means that clients connect to the API server directly.
	Serve func(*Cluster) error
	// Stop stops the server that Serve started. It may be nil.
	Stop func()
	// AllowJoin creates the objects that nodes need to join, such as tokens and RBAC rules. nil means kubeadm's.
	AllowJoin func(*Cluster) error
}

func (c *Cluster) serve() error {
	if c.variant.Serve == nil {
		return nil
	}
	return c.variant.Serve(c)
}

// Path returns the path at which this process can open a file of the control plane.
func (c *Cluster) Path(name string) string { return c.path(name) }

// ListenOn listens on a TCP address of the control plane's host.
func (c *Cluster) ListenOn(address string) (l net.Listener, err error) {
	err = machine.InNetwork(c.host.Pid(), func() (err error) { l, err = net.Listen("tcp", address); return err })
	return l, err
}

// Block rejects connections from the control plane's host to a TCP port of the machines.
func (c *Cluster) Block(port string) error {
	return c.run(fmt.Sprintf("table inet block%[1]s {\nchain out { type filter hook output priority 0; ip daddr 10.97.0.2-10.97.0.254 "+
		"tcp dport %[1]s reject with tcp reset; }\n}", port), "nft", "-f", "-")
}
