package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// podPage writes the page of a pod: its containers, and its log beside its events.
func (p *Page) podPage(ctx context.Context, v *view) error {
	q := v.r.URL.Query()
	namespace, name := q.Get("namespace"), q.Get("pod")
	d, err := p.collectDocument(ctx, choice{warnings: v.warnings, namespace: namespace, pod: name})
	if err != nil {
		return err
	}
	if len(d.Pods) == 0 {
		return notFound(fmt.Sprintf("The pod %s/%s is not on this node.", cut(namespace, 260), cut(name, 260)))
	}
	v.d = d
	one := &d.Pods[0]
	details := p.details(ctx, one.UID)
	shown := q.Get("container")
	if !slices.ContainsFunc(one.Containers, func(c container) bool { return c.Name == shown }) {
		shown = ""
		if len(one.Containers) > 0 {
			shown = one.Containers[0].Name
		}
	}
	previous := q.Get(paramPrevious) == "true"
	v.begin(one.Name, "", false)
	v.section("pod", one.Name)
	v.raw("</h2>\n")
	v.podFacts(one, details.Origin)
	if len(details.Problems) > 0 {
		v.raw("<ul class=\"alarm\">\n")
		for _, problem := range details.Problems[:min(len(details.Problems), maxAttention)] {
			v.element("li", cut(problem, maxText))
		}
		v.raw("</ul>\n")
	}
	v.containers(one, shown)
	v.raw("</section>\n<div class=\"beside\">\n")
	v.log(one, shown, previous, p.logOf(ctx, namespace, name, shown, previous))
	address := func(events string) string {
		return podAddress(namespace, name, "container", q.Get("container"), paramEvents, events)
	}
	v.events(newestEvents(details.Events, v.warnings), address(""), address(onlyWarnings), true)
	v.raw("</div>\n")
	v.finish()
	return nil
}

func (v *view) podFacts(p *pod, origin string) {
	state := p.State
	if p.State == "Running" && !p.Ready {
		state += ", not ready"
	}
	if p.Why != "" {
		state += ": " + p.Why
	}
	list := []fact{{name: "State", text: state, bad: p.Health == failing}}
	if p.LastExit != nil {
		list = append(list, fact{name: "Last exit", text: p.LastExit.Container + ": " + exitText(p.LastExit, v.d.Now)})
	}
	list = append(list, fact{name: "Namespace", text: p.Namespace}, fact{name: "Age", text: ageText(p.Created, v.d.Now)},
		fact{name: "Restarts", text: count(int(p.Restarts))}, fact{name: "From", text: originText(p.Source, origin)},
		fact{name: "Address", text: strings.Join(p.Addresses, ", ")})
	if n := p.NanoCores; n != nil {
		list = append(list, fact{name: "CPU", text: percent(float64(*n)/1e9, float64(v.d.Cores)) + ", " + coresText(float64(*n)/1e9)})
	}
	if n := p.Memory; n != nil {
		text := percent(float64(*n), float64(v.d.Memory)) + ", " + bytesText(float64(*n))
		list = append(list, fact{name: "Memory", text: strings.TrimPrefix(text, ", ")}) // the machine's memory may be unknown
	}
	v.facts(list)
	if len(p.Ports) > 0 {
		v.raw("<p>Host ports:")
		v.ports(p.Ports, maxParts)
		v.raw("</p>\n")
	}
}

// containers writes the table of a pod's containers. Their names are links to their logs.
func (v *view) containers(p *pod, shown string) {
	v.raw(`<div class="wide"><table class="cards">
<thead><tr><th scope="col">Container</th><th scope="col">State</th><th scope="col">Last exit</th><th scope="col">Image</th></tr></thead>
<tbody>
`)
	for i := range p.Containers {
		c := &p.Containers[i]
		v.open("tr", attribute{"data-key", c.Name})
		v.raw("<th scope=\"row\">")
		here := ""
		if c.Name == shown {
			here = "true"
		}
		v.element("a", c.Name, href(v.podLink(p, c.Name, false)), attribute{"aria-current", here})
		v.raw("</th>")
		v.element("td", cmp.Or(c.State, "not started"), class("state "+c.colour()), attribute{"data-label", "State"})
		last := "–"
		if c.Exit != nil {
			last = exitText(c.Exit, v.d.Now)
		}
		v.element("td", last, attribute{"data-label", "Last exit"})
		v.element("td", cut(c.Image, 300), attribute{"data-label", "Image"})
		v.raw("</tr>\n")
	}
	v.raw("</tbody>\n</table></div>\n")
}

// colour returns the class of a container's state.
func (c *container) colour() string {
	switch {
	case c.Ready || c.State == "Completed":
		return "good"
	case c.State == "Running" || c.State == "" || c.State == "PodInitializing" || c.State == "ContainerCreating":
		return "wait"
	}
	return "bad"
}

func (v *view) podLink(p *pod, container string, previous bool) string {
	more := []string{"container", container}
	if previous {
		more = append(more, paramPrevious, "true")
	}
	if v.warnings {
		more = append(more, paramEvents, onlyWarnings)
	}
	return podAddress(p.Namespace, p.Name, more...)
}

// log writes the end of a log.
func (v *view) log(p *pod, container string, previous bool, text string) {
	title := "Log of " + container
	if previous {
		title += " before its last restart"
	}
	v.section("log", title)
	v.raw(" <span class=\"filter\">")
	if previous {
		v.element("a", "now", href(v.podLink(p, container, false)))
	} else if p.Restarts > 0 {
		v.element("a", "before the last restart", href(v.podLink(p, container, true)))
	}
	v.element("a", "newest line", href("#newest"))
	v.raw("</span></h2>\n<pre tabindex=\"0\">")
	if text == "" {
		text = "Nothing yet."
	}
	v.text(text)
	v.raw("<span id=\"newest\" tabindex=\"-1\"></span></pre>\n</section>\n")
}

// logOf returns the end of a container's log, or the reason why it cannot be read.
func (p *Page) logOf(ctx context.Context, namespace, pod, container string, previous bool) string {
	if container == "" {
		return "The pod has no containers."
	}
	b, err := p.readLog(ctx, namespace, pod, container, previous)
	if err != nil {
		return "The log cannot be read: " + err.Error()
	}
	return logText(b)
}
