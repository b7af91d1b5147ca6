package host

import (
	"net"
	"path/filepath"
	"strconv"
)

// A NetworkLink is the state of a network interface.
type NetworkLink struct {
	Name      string   `json:"name"`
	State     string   `json:"state"`           // the kernel's operstate, such as up, down or dormant; empty if unknown
	Mbit      int      `json:"mbit,omitempty"`  // speed in Mbit/s; 0 if unknown
	Addresses []string `json:"addresses"`       // with prefix lengths
	Radio     bool     `json:"radio,omitempty"` // whether it is a wireless interface
}

// maxAddresses is the maximum number of addresses of one interface.
const maxAddresses = 16

// NetworkLinks returns the state of the interfaces with the given names. An interface that no longer exists has no state and no
// addresses.
func (h *Host) NetworkLinks(names []string) (out []NetworkLink) {
	for _, name := range names {
		dir := filepath.Join(h.path("sys/class/net"), name)
		l := NetworkLink{Name: name, State: firstLine(dir, "operstate"), Addresses: []string{}}
		if n, err := strconv.Atoi(firstLine(dir, "speed")); err == nil && n > 0 { // -1 without a cable
			l.Mbit = n
		}
		radio, _ := filepath.Glob(filepath.Join(dir, "phy80211"))
		l.Radio = len(radio) > 0
		if i, err := net.InterfaceByName(name); err == nil {
			all, _ := i.Addrs() // after an error the addresses are unknown
			for _, a := range all[:min(len(all), maxAddresses)] {
				l.Addresses = append(l.Addresses, a.String())
			}
		}
		out = append(out, l)
	}
	return out
}
