package page

import (
	"strconv"
	"time"
)

// The size of a chart's coordinates. The style sheet scales them.
const (
	chartWidth  = 240
	chartHeight = 58
)

// A chart shows the last hour of one or two figures.
type chart struct {
	title, whole string   // whole describes the top of the chart
	big          string   // the present value
	small        []string // details of the present value
	bad          bool     // the value is near its limit
	most         float64  // the value at the top
	series       []func(*Reading) float64
}

// full is the used fraction of memory or disk space at which the chart is marked.
const full = 0.9

// charts writes the charts of the machine's resource use in the last hour.
func (v *view) charts() {
	d := v.d
	if len(d.History) == 0 {
		return
	}
	last := &d.History[len(d.History)-1]
	v.raw("<section id=\"charts\" aria-label=\"The last hour\">\n")
	cores := func(r *Reading) float64 { return r.Cores }
	v.chart(share("CPU", last.Cores, float64(d.Cores), coresText(last.Cores), coresOf(d.Cores), cores))
	v.chart(spaceChart("Memory", last.Memory, d.Memory, func(r *Reading) float64 { return float64(r.Memory) }))
	if d.Disk != nil {
		c := spaceChart("Disk", last.Disk, d.Disk.Total, func(r *Reading) float64 { return float64(r.Disk) })
		c.bad = float64(d.Disk.Free) < (1-full)*c.most // space that is reserved for root is not free either
		v.chart(c)
	}
	most := 1024.0
	for i := range d.History {
		most = max(most, d.History[i].ReceivedBy, d.History[i].SentBy)
	}
	received := func(r *Reading) float64 { return r.ReceivedBy }
	sent := func(r *Reading) float64 { return r.SentBy }
	v.chart(chart{title: "Network", whole: bytesText(most) + "/s", most: most, series: []func(*Reading) float64{received, sent},
		small: []string{"in " + bytesText(last.ReceivedBy) + "/s", "out " + bytesText(last.SentBy) + "/s"}})
	v.raw("</section>\n")
}

func coresOf(n int) string {
	if n == 1 {
		return "1 core"
	}
	return count(n) + " cores"
}

func share(title string, n, of float64, amount, whole string, value func(*Reading) float64) chart {
	c := chart{title: title, whole: whole, big: percent(n, of), small: []string{amount}, most: of, series: []func(*Reading) float64{value}}
	if c.big == "" {
		c.whole = ""
	}
	return c
}

// spaceChart returns the chart of memory or a disk. The chart is marked if little memory or disk
// space is left.
func spaceChart(title string, used, of uint64, value func(*Reading) float64) chart {
	c := share(title, float64(used), float64(of), bytesText(float64(used)), bytesText(float64(of)), value)
	c.bad = of > 0 && float64(used) >= full*c.most
	return c
}

func (v *view) chart(c chart) {
	v.raw("<figure><figcaption><span>")
	v.text(c.title)
	v.raw("</span><span>")
	v.text(c.whole)
	v.raw("</span></figcaption>")
	bad := ""
	if c.bad {
		bad = "bad"
	}
	v.open("strong", class(bad))
	v.text(c.big)
	for i, s := range c.small {
		kind := ""
		if len(c.series) > 1 {
			kind = []string{"in", "out"}[i]
		}
		v.raw(" ")
		v.element("small", s, class(kind))
	}
	v.raw("</strong>")
	v.open("svg", attribute{"viewBox", "0 0 " + count(chartWidth) + " " + count(chartHeight)}, attribute{"preserveAspectRatio", "none"},
		attribute{"role", "img"}, attribute{"aria-label", c.title + ", the last hour"})
	v.raw(`<line class="base" x1="0" x2="240" y1="57.5" y2="57.5"></line>`)
	for i, value := range c.series {
		v.curve(value, c.most, len(c.series) == 1, []string{"a", "b"}[i])
	}
	v.raw("</svg><div class=\"axis\"><span>1 h ago</span><span>now</span></div></figure>\n")
}

// curve writes the path of one series, and the area below it.
func (v *view) curve(value func(*Reading) float64, most float64, area bool, kind string) {
	h := v.d.History
	if len(h) < 2 {
		return
	}
	x := func(r *Reading) string {
		at := chartWidth - h[len(h)-1].At.Sub(r.At).Seconds()/time.Hour.Seconds()*chartWidth
		return strconv.FormatFloat(max(0, at), 'f', 1, 64)
	}
	path := ""
	for i := range h {
		y := chartHeight - 1 - min(1, value(&h[i])/max(most, 1e-9))*(chartHeight-4)
		path += " L" + x(&h[i]) + " " + strconv.FormatFloat(y, 'f', 1, 64)
	}
	if area {
		bottom := " " + count(chartHeight)
		v.element("path", "", class("area"), attribute{"d", "M" + x(&h[0]) + bottom + path + " L" + count(chartWidth) + bottom + " Z"})
	}
	v.element("path", "", class(kind), attribute{"d", "M" + path[2:]})
}
