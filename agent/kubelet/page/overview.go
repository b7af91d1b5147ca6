package page

import (
	"fmt"
	"strings"

	"github.com/islet-edge/islet/internal/api"
)

// overview writes the page of the node.
func (v *view) overview() {
	v.begin(v.d.Node, "./", true)
	v.attention()
	v.charts()
	v.raw("<section id=\"facts\" aria-label=\"The device\">\n")
	v.facts(v.d.deviceFacts())
	v.raw("</section>\n")
	v.pods()
	v.events(v.d.Events, "./", "./?"+paramEvents+"="+onlyWarnings, false)
	v.finish()
}

func (v *view) attention() {
	if len(v.d.Attention) == 0 {
		return
	}
	v.section("attention", "Needs attention")
	v.raw("</h2>\n<ul>\n")
	for _, a := range v.d.Attention {
		v.raw("<li>")
		v.withPodLink(cut(a, maxText))
		v.raw("</li>\n")
	}
	v.raw("</ul>\n</section>\n")
}

// withPodLink writes a message. If the message begins with the name of a pod of the page, as in "Pod NAMESPACE/NAME: ", the name
// becomes a link.
func (v *view) withPodLink(message string) {
	name, rest, found := strings.Cut(message, ": ")
	if len(name) > 4 && found && strings.EqualFold(name[:4], "pod ") {
		for i := range v.d.Pods {
			if p := &v.d.Pods[i]; name[4:] == p.Namespace+"/"+p.Name {
				v.text(name[:4])
				v.element("a", name[4:], href(podAddress(p.Namespace, p.Name, "container", p.suspect())))
				v.text(": ", rest)
				return
			}
		}
	}
	v.text(message)
}

// deviceFacts describes the machine.
func (d *document) deviceFacts() []fact {
	b := &d.Device.Board
	out := []fact{{name: "Addresses", text: strings.Join(d.Device.Addresses, ", ")}, d.controlPlane()}
	var links []string
	for _, l := range d.Device.Links {
		links = append(links, strings.TrimSpace(l.Name+" "+l.State))
	}
	out = append(out, fact{name: "Links", text: strings.Join(links, ", ")}, d.clock())
	var temperatures []string
	hottest := 0.0
	for i, t := range b.Temperatures {
		hottest = max(hottest, t.Celsius)
		if i < 4 {
			temperatures = append(temperatures, fmt.Sprintf("%s %.0f °C", t.Name, t.Celsius))
		}
	}
	out = append(out, fact{name: "Temperature", text: strings.Join(temperatures, ", "), bad: hottest >= hot})
	if b.MHz > 0 && b.MaxMHz > 0 {
		out = append(out, fact{name: "Frequency", text: fmt.Sprintf("%s, %.0f of %.0f MHz", percent(b.MHz, b.MaxMHz), b.MHz, b.MaxMHz)})
	}
	return append(out, powerFact(b))
}

// powerFact describes the warnings about the board's power supply. The text of the fact is empty if there are no warnings, or if
// the board cannot report any.
func powerFact(b *api.Board) fact {
	var parts []string
	if len(b.Power) > 0 {
		parts = append(parts, strings.Join(b.Power, ", ")+" now")
	}
	if len(b.PowerSinceBoot) > 0 {
		parts = append(parts, "since the boot: "+strings.Join(b.PowerSinceBoot, ", "))
	}
	return fact{name: "Power", text: strings.Join(parts, "; "), bad: len(b.Power) > 0}
}

func (d *document) controlPlane() fact {
	c := d.Device.Cluster
	if c == nil {
		return fact{name: "Control plane", text: "none: the node stands alone"}
	}
	text := fmt.Sprintf("%s for %s", c.Link, ageText(c.Since, d.Now))
	for _, more := range []string{c.Server, c.Reason, c.Message} {
		if more != "" {
			text += ", " + more
		}
	}
	return fact{name: "Control plane", text: text, bad: c.Link != "Up"}
}

func (d *document) clock() fact {
	text := d.Now.UTC().Format("2006-01-02 15:04:05 UTC")
	if d.Device.Clock != "" {
		text += ", " + d.Device.Clock
	}
	return fact{name: "Clock", text: text, bad: d.Device.ClockBad}
}

// pods writes the table of pods.
func (v *view) pods() {
	v.section("pods", "Pods")
	v.raw(" <span>")
	v.text(v.d.Counts)
	v.raw("</span></h2>\n")
	if len(v.d.Pods) == 0 {
		v.raw("<p class=\"quiet\">none</p>\n</section>\n")
		return
	}
	v.raw(`<div class="wide"><table class="cards">
<thead><tr><th scope="col">Pod</th><th scope="col">State</th><th scope="col" class="n">CPU</th><th scope="col" class="n">Memory</th>
<th scope="col" class="n">Age</th><th scope="col" class="n">Restarts</th><th scope="col">Address</th><th scope="col">Image</th></tr></thead>
<tbody>
`)
	for i := range v.d.Pods {
		v.podRow(&v.d.Pods[i])
	}
	v.raw("</tbody>\n</table></div>\n")
	if v.d.More > 0 {
		v.raw("<p class=\"quiet\">")
		v.text("and ", count(v.d.More), " more: islet pods lists all")
		v.raw("</p>\n")
	}
	v.raw("</section>\n")
}

func (v *view) podRow(p *pod) {
	v.open("tr", attribute{"data-key", p.UID})
	v.raw("<th scope=\"row\">")
	v.element("a", p.Name, href(podAddress(p.Namespace, p.Name, "container", p.suspect())))
	v.element("small", p.Namespace+", from "+originText(p.Source, ""))
	v.raw("</th>")
	v.state(p)
	v.used("CPU", p.NanoCores, func(n float64) (string, string) {
		return percent(n/1e9, float64(v.d.Cores)), coresText(n / 1e9)
	})
	v.used("Memory", p.Memory, func(n float64) (string, string) { return percent(n, float64(v.d.Memory)), bytesText(n) })
	v.element("td", ageText(p.Created, v.d.Now), class("n"), attribute{"data-label", "Age"})
	v.element("td", count(int(p.Restarts)), class("n"), attribute{"data-label", "Restarts"})
	v.open("td", attribute{"data-label", "Address"})
	v.text(strings.Join(p.Addresses[:min(len(p.Addresses), 2)], ", "))
	v.ports(p.Ports, 6)
	v.raw("</td>")
	v.open("td", attribute{"data-label", "Image"})
	if len(p.Containers) > 0 {
		v.text(cut(p.Containers[0].Image, 120))
		if n := len(p.Containers) - 1; n > 0 {
			v.element("small", "and "+count(n)+" more")
		}
	}
	v.raw("</td></tr>\n")
}

// suspect returns the name of the container that ended last. A person usually wants to see the log of this container first.
// The result is empty if no container has ended, or if the pod is healthy or finished.
func (p *pod) suspect() string {
	if p.LastExit == nil || p.Health > waiting {
		return ""
	}
	return p.LastExit.Container
}

func (v *view) state(p *pod) {
	v.open("td", class("state "+healthClass(p.Health)))
	v.raw("<span>")
	v.text(p.State)
	if p.State == "Running" && !p.Ready {
		v.text(", not ready")
	}
	v.raw("</span>")
	if p.Why != "" {
		v.element("small", cut(p.Why, 300))
	}
	if e := p.LastExit; e != nil {
		v.element("small", "last: "+exitText(e, v.d.Now))
	}
	v.raw("</td>")
}

// used writes a table cell with a percentage, and with the amount below the percentage.
func (v *view) used(label string, n *uint64, texts func(float64) (share, amount string)) {
	v.open("td", class("n"), attribute{"data-label", label})
	if n == nil {
		v.text("–")
	} else {
		share, amount := texts(float64(*n))
		v.text(share)
		v.element("small", amount)
	}
	v.raw("</td>")
}

func healthClass(h health) string { return []string{"bad", "wait", "good", "done"}[h] }
