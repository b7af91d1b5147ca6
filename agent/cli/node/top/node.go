package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// traffic contains the byte counters of a network interface, or of a pod's disk I/O, at one point in time.
type traffic struct {
	at                time.Time
	inBytes, outBytes uint64 // bytes
}

func trafficOf(at time.Time, i *stats.InterfaceStats) (t traffic, ok bool) {
	if i.RxBytes == nil || i.TxBytes == nil {
		return t, false
	}
	return traffic{at: at, inBytes: *i.RxBytes, outBytes: *i.TxBytes}, true
}

// storeCounters stores the counters of the first measurement, and reports whether a second measurement is needed.
func (c *topCommand) storeCounters(sum *stats.Summary) bool {
	if c.output != "wide" {
		return false
	}
	c.rememberPods(sum.Pods)
	c.rememberLinks(sum.Node.Network)
	return true
}

// rememberLinks stores the traffic of the node's interfaces.
func (c *topCommand) rememberLinks(n *stats.NetworkStats) {
	if n == nil {
		return
	}
	if c.lastLinks == nil {
		c.lastLinks = map[string]traffic{}
	}
	for i := range n.Interfaces {
		if t, ok := trafficOf(n.Time.Time, &n.Interfaces[i]); ok {
			c.lastLinks[n.Interfaces[i].Name] = t
		}
	}
}

// rememberPods stores the traffic of pods.
func (c *topCommand) rememberPods(pods []stats.PodStats) {
	if c.lastPods == nil {
		c.lastPods = map[string]traffic{}
	}
	c.lastDisks = c.disks
	for i := range pods {
		if n := pods[i].Network; n != nil {
			if t, ok := trafficOf(n.Time.Time, &n.InterfaceStats); ok {
				c.lastPods[pods[i].PodRef.UID] = t
			}
		}
	}
}

// readDisks requests the disk IO. An older agent may not support this request.
func (c *topCommand) readDisks(ctx context.Context) error {
	var all []api.DiskIO
	if err := client.Get(ctx, c.Tool, api.PathIO, &all); err != nil {
		if command.CodeOf(err) == command.ExitNotFound {
			return nil
		}
		return err
	}
	c.disks = make(map[string]traffic, len(all))
	for _, io := range all {
		c.disks[io.UID+"/"+io.Container] = traffic{at: io.At, inBytes: io.Read, outBytes: io.Written}
	}
	return nil
}

// diskRates returns the rates of a pod or container.
func (c *topCommand) diskRates(uid, container string) []string {
	key := uid + "/" + container
	return shownRates(ratesBetween(c.lastDisks[key], c.disks[key]))
}

// perSecond returns the rates of an interface since the previous measurement, in bytes per second. It returns false if
// the rates are unknown.
func perSecond(before traffic, at time.Time, i *stats.InterfaceStats) (in, out float64, ok bool) {
	now, ok := trafficOf(at, i)
	if !ok {
		return 0, 0, false
	}
	return ratesBetween(before, now)
}

// ratesBetween returns the rates between two counters, in bytes per second. It returns false if a rate cannot be computed,
// for example because the counters were reset.
func ratesBetween(before, now traffic) (in, out float64, ok bool) {
	took := now.at.Sub(before.at).Seconds()
	if before.at.IsZero() || took <= 0 || now.inBytes < before.inBytes || now.outBytes < before.outBytes {
		return 0, 0, false
	}
	return float64(now.inBytes-before.inBytes) / took, float64(now.outBytes-before.outBytes) / took, true
}

// podTraffic returns the incoming and outgoing rates of a pod.
func (c *topCommand) podTraffic(p *stats.PodStats) []string {
	if p.Network == nil {
		return shownRates(0, 0, false)
	}
	return shownRates(perSecond(c.lastPods[p.PodRef.UID], p.Network.Time.Time, &p.Network.InterfaceStats))
}

// nodeTraffic returns the total rates of all external interfaces. The Summary API reports only one of these
// interfaces as the default interface.
func (c *topCommand) nodeTraffic(n *stats.NetworkStats, links []string) []string {
	if n == nil {
		return shownRates(0, 0, false)
	}
	var in, out float64
	known := false
	for i := range n.Interfaces {
		link := &n.Interfaces[i]
		if a, b, ok := perSecond(c.lastLinks[link.Name], n.Time.Time, link); ok && slices.Contains(links, link.Name) {
			in, out, known = in+a, out+b, true
		}
	}
	return shownRates(in, out, known)
}

func shownRates(in, out float64, known bool) []string {
	if !known {
		return []string{"-", "-"}
	}
	return []string{api.FormatSize(uint64(in)), api.FormatSize(uint64(out))}
}

// wideColumns returns the columns that are added for a pod by -o wide.
func (c *topCommand) wideColumns(p *stats.PodStats) []string {
	disk := "-"
	if fs := p.EphemeralStorage; fs != nil && fs.UsedBytes != nil {
		disk = api.FormatSize(*fs.UsedBytes)
	}
	return slices.Concat([]string{disk}, c.diskRates(p.PodRef.UID, ""), c.podTraffic(p), waitFractions(p.CPU, p.Memory, p.IO))
}

// waitTitles are the column titles for the times in which processes waited.
var waitTitles = []string{"CPU WAIT", "MEM WAIT", "IO WAIT"}

// waitFractions returns three fractions of the last ten seconds: the times in which a process waited for CPU, for
// memory, and for disks. A wait that is caused by a CPU limit counts as a wait for CPU. The fractions are unknown
// with cgroup v1.
func waitFractions(cpu *stats.CPUStats, memory *stats.MemoryStats, io *stats.IOStats) []string {
	out := []string{"-", "-", "-"}
	say := func(i int, p *stats.PSIStats) {
		if p != nil {
			out[i] = fmt.Sprintf("%.0f%%", p.Some.Avg10)
		}
	}
	if cpu != nil {
		say(0, cpu.PSI)
	}
	if memory != nil {
		say(1, memory.PSI)
	}
	if io != nil {
		say(2, io.PSI)
	}
	return out
}

// wideContainer returns the columns that are added for a container by -o wide: the size of written files and logs,
// disk rates, and waits.
func (c *topCommand) wideContainer(p *stats.PodStats, k *stats.ContainerStats) []string {
	if c.output != "wide" {
		return nil
	}
	used, known := uint64(0), false
	for _, fs := range []*stats.FsStats{k.Rootfs, k.Logs} {
		if fs != nil && fs.UsedBytes != nil {
			used, known = used+*fs.UsedBytes, true
		}
	}
	disk := "-"
	if known {
		disk = api.FormatSize(used)
	}
	return slices.Concat([]string{disk}, c.diskRates(p.PodRef.UID, k.Name), waitFractions(k.CPU, k.Memory, k.IO))
}

// showNode prints the machine's use and the sensors of its board.
func (c *topCommand) showNode(ctx context.Context, n *stats.NodeStats) error {
	var board api.Board
	if err := client.Get(ctx, c.Tool, api.PathBoard, &board); err != nil {
		return err
	}
	if c.output == "json" || c.output == "yaml" {
		return terminal.PrintObject(c.Tool, c.output, struct {
			*stats.NodeStats
			Board api.Board `json:"board"`
		}{n, board})
	}
	c.nodeTable(n)
	if c.output == "wide" {
		rates := c.nodeTraffic(n.Network, board.Links)
		fmt.Fprintf(c.Out, "network:     in %s/s, out %s/s\n", rates[0], rates[1])
		c.rememberLinks(n.Network)
	}
	for _, line := range boardLines(board) {
		fmt.Fprintln(c.Out, line)
	}
	return nil
}

// boardLines describes the values of the sensors. For a machine without sensors it returns no
// lines.
func boardLines(b api.Board) (out []string) {
	if len(b.Temperatures) > 0 {
		var all []string
		for _, t := range b.Temperatures[:min(len(b.Temperatures), 4)] {
			all = append(all, fmt.Sprintf("%s %.1f°C", printable.Line(t.Name), t.Celsius))
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
