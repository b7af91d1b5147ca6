package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
	"github.com/islet-edge/islet/net/nft"
	"github.com/vishvananda/netlink"
)

// A site is a node and a container in separate network namespaces.
type site struct {
	node netns.NS
	path string
	dir  string
}

func newSite(t *testing.T) *site {
	s := &site{dir: t.TempDir()}
	s.node, _ = netnstest.New(t)
	_, s.path = netnstest.New(t)
	return s
}

func (s *site) run(t *testing.T, command, kind, more string) (*current.Result, error) {
	t.Helper()
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "type": %q, "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.9.0.0/24"}%s}`, kind, s.dir, more)
	result, err := Run(context.Background(), kind, &Request{Command: command, Host: s.node, Exec: &Exec{Host: s.node}, Args: &skel.CmdArgs{
		ContainerID: "c", IfName: "eth0", Netns: s.path, StdinData: []byte(conf),
	}})
	if err != nil || result == nil {
		return nil, err
	}
	return current.NewResultFromResult(result)
}

func (s *site) previous(t *testing.T, r *current.Result) string {
	t.Helper()
	r.CNIVersion = "1.1.0"
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return `, "prevResult": ` + string(data)
}

func TestBridge(t *testing.T) {
	s := newSite(t)
	more := `, "bridge": "br7", "isDefaultGateway": true, "ipMasq": true, "mtu": 1400, "portIsolation": true, "promiscMode": true, "dns": {"nameservers": ["10.9.0.53"]},
		"runtimeConfig": {"mac": "02:00:00:00:00:07"}`
	r, err := s.run(t, "ADD", "bridge", more)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Interfaces) != 3 || r.Interfaces[0].Name != "br7" || r.Interfaces[2].Mac != "02:00:00:00:00:07" ||
		r.Interfaces[2].Mtu != 1400 || r.Interfaces[2].Sandbox != s.path {
		t.Errorf("interfaces are %+v", r.Interfaces)
	}
	if len(r.IPs) != 1 || r.IPs[0].Address.String() != "10.9.0.2/24" || r.IPs[0].Gateway.String() != "10.9.0.1" || *r.IPs[0].Interface != 2 {
		t.Errorf("addresses are %+v", r.IPs)
	}
	if len(r.Routes) != 1 || r.Routes[0].Dst.String() != "0.0.0.0/0" || len(r.DNS.Nameservers) != 1 {
		t.Errorf("routes are %+v, DNS %+v", r.Routes, r.DNS)
	}
	if _, err := s.run(t, "CHECK", "bridge", more+s.previous(t, r)); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	h, err := s.node.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	br, err := h.LinkByName("br7")
	if err != nil || br.Attrs().MTU != 1400 || br.Attrs().Promisc == 0 {
		t.Errorf("bridge: %+v, %v", br, err)
	}
	port, err := h.LinkByName(r.Interfaces[1].Name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := h.LinkGetProtinfo(port); err != nil || !info.Isolated || info.Hairpin {
		t.Errorf("port: %+v, %v", info, err)
	}
	if err := h.LinkSetNoMaster(port); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, "CHECK", "bridge", more+s.previous(t, r)); err == nil {
		t.Error("CHECK does not see that the port is out of the bridge")
	}
	for range 2 {
		if _, err := s.run(t, "DEL", "bridge", more); err != nil {
			t.Error(err)
		}
	}
	if left, err := nft.Load(s.node, tableName); err != nil || len(left.Masquerade)+len(left.Local) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

func TestBridgeAddressInTheWay(t *testing.T) {
	s := newSite(t)
	if _, err := s.run(t, "ADD", "bridge", `, "isGateway": true`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, "DEL", "bridge", `, "isGateway": true`); err != nil {
		t.Fatal(err)
	}
	h, err := s.node.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	br, err := h.LinkByName("cni0")
	if err != nil {
		t.Fatal(err)
	}
	// The order matters: when the first address of a network is removed, the kernel removes the other addresses too.
	if err := h.AddrDel(br, addr(t, "10.9.0.1/24")); err != nil {
		t.Fatal(err)
	}
	if err := h.AddrAdd(br, addr(t, "10.9.0.9/24")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, "ADD", "bridge", `, "isGateway": true`); err == nil || !strings.Contains(err.Error(), "10.9.0.9/24") {
		t.Errorf("error is %v", err)
	}
	if _, err := s.run(t, "ADD", "bridge", `, "isGateway": true, "forceAddress": true`); err != nil {
		t.Errorf("forceAddress: %v", err)
	}
}

func TestBridgeAddressElsewhere(t *testing.T) {
	s := newSite(t)
	h, err := s.node.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	other := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	other.Name = "other"
	if err := h.LinkAdd(other); err != nil {
		t.Fatal(err)
	}
	if err := h.AddrAdd(other, addr(t, "10.9.0.1/16")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, "ADD", "bridge", `, "isGateway": true`); err == nil ||
		!strings.Contains(err.Error(), "interface other has the address 10.9.0.1 already") {
		t.Errorf("error is %v", err)
	}
	if err := h.LinkDel(other); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, "ADD", "bridge", `, "isGateway": true`); err != nil {
		t.Errorf("once the address is free: %v", err)
	}
}

func addr(t *testing.T, s string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBridgeOfLayer2(t *testing.T) {
	s := newSite(t)
	conf := `{"cniVersion": "1.0.0", "name": "n", "type": "bridge", "ipam": {}}`
	r, err := Run(context.Background(), "bridge", &Request{Command: "ADD", Host: s.node, Exec: &Exec{Host: s.node}, Args: &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Netns: s.path, StdinData: []byte(conf)}})
	if err != nil {
		t.Fatal(err)
	}
	if r := r.(*current.Result); len(r.IPs) != 0 || len(r.Interfaces) != 3 {
		t.Errorf("result is %+v", r)
	}
}

func TestPortmapChecksAndCollects(t *testing.T) {
	s := newSite(t)
	r, err := s.run(t, "ADD", "bridge", `, "isGateway": true`)
	if err != nil {
		t.Fatal(err)
	}
	ports := `, "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}` + s.previous(t, r)
	if _, err := s.run(t, "CHECK", "portmap", ports); err == nil {
		t.Error("CHECK finds a port that is not open")
	}
	if _, err := s.run(t, "ADD", "portmap", ports); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, "CHECK", "portmap", ports); err != nil {
		t.Error(err)
	}
	if _, err := s.run(t, "GC", "portmap", `, "cni.dev/valid-attachments": [{"containerID": "c", "ifname": "eth0"}]`); err != nil {
		t.Fatal(err)
	}
	if is, err := nft.Load(s.node, tableName); err != nil || len(is.Ports) != 1 {
		t.Errorf("ports are %v, %v", is.Ports, err)
	}
	if _, err := s.run(t, "GC", "portmap", ""); err != nil {
		t.Fatal(err)
	}
	if is, err := nft.Load(s.node, tableName); err != nil || len(is.Ports) != 0 {
		t.Errorf("ports are left: %v, %v", is.Ports, err)
	}
	if _, err := s.run(t, "ADD", "portmap", `, "snat": false`+ports); err == nil || !strings.Contains(err.Error(), "snat") {
		t.Errorf("snat: %v", err)
	}
}
