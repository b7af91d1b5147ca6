package page

import (
	"cmp"
	"strings"

	"github.com/islet-edge/islet/internal/sorting"
)

// network writes the page of the network.
func (v *view) network() {
	d := v.d
	v.begin("Network of "+d.Node, "network", true)
	v.section("node-network", "The node")
	v.raw("</h2>\n")
	list := []fact{{name: "Addresses", text: strings.Join(d.Device.Addresses, ", ")}, d.controlPlane(), d.clock()}
	if c := d.Device.Cluster; c != nil && c.Pending > 0 {
		list = append(list, fact{name: "Not sent yet", text: "the status of " + count(c.Pending) + " pods"})
	}
	if n := len(d.History); n > 0 {
		last := d.History[n-1]
		list = append(list, fact{name: "Traffic", text: "in " + bytesText(last.ReceivedBy) + "/s, out " + bytesText(last.SentBy) + "/s"})
	}
	v.facts(list)
	v.links()
	v.raw("</section>\n")
	v.podNetwork()
	v.hostPorts()
	v.podAddresses()
	v.finish()
}

// links writes the table of the network interfaces that connect the machine to other machines.
func (v *view) links() {
	if len(v.d.Device.Links) == 0 {
		return
	}
	v.raw(`<div class="wide"><table class="cards">
<thead><tr><th scope="col">Interface</th><th scope="col">State</th><th scope="col">Speed</th><th scope="col">Addresses</th></tr></thead>
<tbody>
`)
	for _, l := range v.d.Device.Links {
		colour, speed := "wait", "–"
		switch l.State {
		case "up":
			colour = "good"
		case "down", "lowerlayerdown":
			colour = "bad"
		}
		if l.Mbit > 0 {
			speed = count(l.Mbit) + " Mbit/s"
		} else if l.Radio {
			speed = "radio"
		}
		v.raw("<tr>")
		v.element("th", l.Name, attribute{"scope", "row"})
		v.element("td", cmp.Or(l.State, "unknown"), class("state "+colour), attribute{"data-label", "State"})
		v.element("td", speed, attribute{"data-label", "Speed"})
		v.element("td", strings.Join(l.Addresses, ", "), attribute{"data-label", "Addresses"})
		v.raw("</tr>\n")
	}
	v.raw("</tbody>\n</table></div>\n")
}

func (v *view) podNetwork() {
	n := v.d.Device.Network
	v.section("pod-network", "The pod network")
	v.raw("</h2>\n")
	state := fact{name: "State", text: "ready"}
	if !n.Ready {
		state = fact{name: "State", text: strings.TrimSuffix("not ready: "+n.Message, ": "), bad: true}
	}
	list := []fact{state, {name: "Configuration", text: n.Config}, {name: "Address ranges", text: strings.Join(n.PodCIDRs, ", ")}}
	if r := n.Repairs; r != nil {
		text := count(r.Count) + " times, the last time " + ageText(r.Last, v.d.Now) + " ago: " + r.What
		list = append(list, fact{name: "Repaired", text: text})
	}
	v.facts(list)
	v.raw("</section>\n")
}

// hostPorts writes the table of the ports of the node that lead to pods, in the order of the ports.
func (v *view) hostPorts() {
	type row struct {
		hostPort
		pod *pod
	}
	var rows []row
	for i := range v.d.Pods {
		for _, p := range v.d.Pods[i].Ports {
			rows = append(rows, row{p, &v.d.Pods[i]})
		}
	}
	sorting.StableBy(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol)) })
	v.section("host-ports", "Host ports")
	v.raw("</h2>\n")
	if len(rows) == 0 {
		v.raw("<p class=\"quiet\">none</p>\n</section>\n")
		return
	}
	v.raw(`<div class="wide"><table class="cards">
<thead><tr><th scope="col">Port</th><th scope="col">Pod</th><th scope="col">Port of the pod</th><th scope="col">Only at</th></tr></thead>
<tbody>
`)
	for _, r := range rows[:min(len(rows), maxPods)] {
		v.raw("<tr><th scope=\"row\">")
		v.port(r.hostPort)
		v.raw("</th>")
		v.podCell(r.pod)
		v.element("td", strings.TrimSpace(count(int(r.Container))+" "+r.Name), attribute{"data-label", "Port of the pod"})
		v.element("td", cmp.Or(r.HostIP, "–"), attribute{"data-label", "Only at"})
		v.raw("</tr>\n")
	}
	v.raw("</tbody>\n</table></div>\n</section>\n")
}

func (v *view) podCell(p *pod) {
	v.open("td", class("state "+healthClass(p.Health)), attribute{"data-label", "Pod"})
	v.element("a", p.Namespace+"/"+p.Name, href(podAddress(p.Namespace, p.Name)))
	v.raw("</td>")
}

func (v *view) podAddresses() {
	v.section("pod-addresses", "Addresses of pods")
	v.raw("</h2>\n")
	any := false
	for i := range v.d.Pods {
		p := &v.d.Pods[i]
		if len(p.Addresses) == 0 {
			continue
		}
		if !any {
			v.raw(`<div class="wide"><table class="cards">
<thead><tr><th scope="col">Address</th><th scope="col">Pod</th></tr></thead>
<tbody>
`)
		}
		any = true
		v.open("tr", attribute{"data-key", p.UID})
		v.element("th", strings.Join(p.Addresses, ", "), attribute{"scope", "row"})
		v.podCell(p)
		v.raw("</tr>\n")
	}
	if any {
		v.raw("</tbody>\n</table></div>\n")
	} else {
		v.raw("<p class=\"quiet\">none: pods without an address have not started, or are in the node's network</p>\n")
	}
	v.raw("</section>\n")
}
