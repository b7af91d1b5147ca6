package cluster

import (
	"fmt"
	"net"

	"github.com/islet-edge/islet/test/machine"
)

// Dir is the directory of the control plane's files, as the control plane's processes see it.
const Dir = dir

// Address is the address of the control plane's host in the network of the machines.
const Address = gateway

// A Variant contains the differences of another distribution's control plane from the one that kubeadm describes. The zero Variant is
// kubeadm's control plane.
type Variant struct {
	// Certify creates super-admin.conf, controller-manager.conf, scheduler.conf and the files of the flags below. nil means kubeadm.
	Certify func(*Cluster) error
	// APIServer and Controllers are flags after kubeadm's. A later flag replaces an earlier one.
	APIServer, Controllers []string
	// Serve starts what clients connect to before they reach the API server. nil means that they connect to the API server.
	Serve func(*Cluster) error
	// Stop ends what Serve has started. It may be nil.
	Stop func()
	// AllowJoin creates the objects with which nodes join. nil means kubeadm's.
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

// Block refuses the connections of the control plane's host to a TCP port of the machines.
func (c *Cluster) Block(port string) error {
	return c.run(fmt.Sprintf("table inet block%[1]s {\nchain out { type filter hook output priority 0; ip daddr 10.97.0.2-10.97.0.254 "+
		"tcp dport %[1]s reject with tcp reset; }\n}", port), "nft", "-f", "-")
}
