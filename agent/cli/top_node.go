package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/api"
)

// traffic is what came and went over a network until some time.
type traffic struct {
	at      time.Time
	in, out uint64 // bytes
}

func trafficOf(n *stats.NetworkStats) (t traffic, ok bool) {
	if n == nil || n.RxBytes == nil || n.TxBytes == nil {
		return t, false
	}
	return traffic{at: n.Time.Time, in: *n.RxBytes, out: *n.TxBytes}, true
}

// rates remembers what is there at first, and reports whether rates are to be shown for which
// a second measurement is needed.
func (c *topCommand) rates(sum *stats.Summary) bool {
	if c.output != "wide" {
		return false
	}
	c.remember(sum.Pods)
	if t, ok := trafficOf(sum.Node.Network); ok {
		c.before[""] = t
	}
	return true
}

// remember keeps the traffic of pods for the next time.
func (c *topCommand) remember(pods []stats.PodStats) {
	if c.before == nil {
		c.before = map[string]traffic{}
	}
	for i := range pods {
		if t, ok := trafficOf(pods[i].Network); ok {
			c.before[pods[i].PodRef.UID] = t
		}
	}
}

// perSecond is the traffic since it was shown before: in and out.
func (c *topCommand) perSecond(of string, n *stats.NetworkStats) []string {
	now, ok := trafficOf(n)
	before, known := c.before[of]
	took := now.at.Sub(before.at).Seconds()
	if !ok || !known || took <= 0 || now.in < before.in || now.out < before.out {
		return []string{"-", "-"}
	}
	rate := func(n uint64) string { return size(uint64(float64(n) / took)) }
	return []string{rate(now.in - before.in), rate(now.out - before.out)}
}

// wide are the columns of a pod that -o wide adds.
func (c *topCommand) wide(p *stats.PodStats) []string {
	disk := "-"
	if fs := p.EphemeralStorage; fs != nil && fs.UsedBytes != nil {
		disk = size(*fs.UsedBytes)
	}
	return append([]string{disk}, c.perSecond(p.PodRef.UID, p.Network)...)
}

// showNode shows the machine: what is used, and the sensors of its board.
func (c *topCommand) showNode(ctx context.Context, n *stats.NodeStats) error {
	var board api.Board
	if err := c.get(ctx, api.PathBoard, &board); err != nil {
		return err
	}
	if c.output == "json" || c.output == "yaml" {
		return c.printObject(c.output, struct {
			*stats.NodeStats
			Board api.Board `json:"board"`
		}{n, board})
	}
	c.nodeTable(n)
	if c.output == "wide" {
		rates := c.perSecond("", n.Network)
		fmt.Fprintf(c.out, "network:     in %s/s, out %s/s\n", rates[0], rates[1])
		if t, ok := trafficOf(n.Network); ok {
			c.before[""] = t
		}
	}
	for _, line := range boardLines(board) {
		fmt.Fprintln(c.out, line)
	}
	return nil
}

// boardLines says what the sensors show; nothing of a machine without them.
func boardLines(b api.Board) (out []string) {
	if len(b.Temperatures) > 0 {
		var all []string
		for _, t := range b.Temperatures[:min(len(b.Temperatures), 4)] {
			all = append(all, fmt.Sprintf("%s %.1f°C", printable(t.Name), t.Celsius))
		}
		out = append(out, "temperature: "+strings.Join(all, ", "))
	}
	if b.MHz > 0 {
		line := fmt.Sprintf("frequency:   %.0f MHz", b.MHz)
		if b.MaxMHz > 0 {
			line += fmt.Sprintf(" of %.0f", b.MaxMHz)
		}
		out = append(out, line)
	}
	if len(b.Power) > 0 {
		out = append(out, "power:       "+strings.Join(b.Power, ", ")+" now")
	}
	if len(b.PowerSinceBoot) > 0 {
		out = append(out, "since boot:  "+strings.Join(b.PowerSinceBoot, ", "))
	}
	return out
}
