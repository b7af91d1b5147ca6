package page

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

func count(n int) string { return strconv.Itoa(n) }

// ports writes a list of host ports. The parameter most is the maximum number of listed ports. TCP
// ports are links.
func (v *view) ports(list []hostPort, most int) {
	for _, p := range list[:min(len(list), most)] {
		v.raw(" ")
		v.port(p)
	}
	if n := len(list) - most; n > 0 {
		v.element("small", "and "+count(n)+" more ports")
	}
}

func (v *view) port(p hostPort) {
	text := ":" + strconv.Itoa(int(p.Port))
	if p.Protocol != "TCP" {
		v.element("span", text+"/"+p.Protocol, class("port"))
		return
	}
	v.element("a", text, class("port"), href(portAddress(v.r.Host, v.d.Device.Addresses, p)), attribute{"rel", "noreferrer"})
}

// portAddress returns the address at which a browser reaches a host port. The parameter asked is the host name by which the browser
// reached the page. If asked is a name of the loopback address, the browser runs on the device, or uses an SSH tunnel. In this case
// the result contains the node's first address, which the browser can reach in both situations.
func portAddress(asked string, addresses []string, p hostPort) string {
	name := asked
	if h, _, err := net.SplitHostPort(asked); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	if localName(name) || !plainHost(name) {
		name = "localhost"
		if len(addresses) > 0 {
			name = addresses[0]
		}
	}
	if ip, err := netip.ParseAddr(p.HostIP); err == nil && !ip.IsUnspecified() {
		name = ip.String()
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(name, strconv.Itoa(int(p.Port))), Path: "/"}
	if strings.Contains(p.Name, "https") || p.Container == 443 || p.Container == 8443 || p.Port == 443 {
		u.Scheme = "https"
	}
	return u.String()
}

// plainHost reports whether a name contains only characters that are allowed in host names and
// addresses.
func plainHost(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_:", r)
	}) < 0
}
