package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/sorting"
)

// topCommand implements islet top.
type topCommand struct {
	*command.Tool
	client.PodFlag
	client.SelectorFlag
	terminal.RepeatFlags
	all, containers, noHeaders bool
	container                  string // with processes
	sortBy, output             string
	lastPods                   map[string]traffic // by pod UID
	lastLinks                  map[string]traffic // by interface of the node
	disks, lastDisks           map[string]traffic // bytes that pods and containers have read and written, by UID and container name
}

// Show sets up islet top.
func Show(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &topCommand{Tool: t}
	flags.BoolVarP(&c.all, "all-namespaces", "A", false, "pods of every namespace")
	flags.StringVarP(&c.Namespace, "namespace", "n", "", `pods of this namespace (default "default")`)
	flags.BoolVar(&c.containers, "containers", false, "show each container")
	flags.StringVar(&c.sortBy, "sort-by", "", "cpu or memory")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "print no header")
	flags.StringVarP(&c.output, "output", "o", "",
		"wide: also disk, network (not with --containers) and waits; json or yaml: the figures of the Summary API")
	flags.StringVarP(&c.container, "container", "c", "", "with processes: only processes of this container")
	c.DeclareSelector(flags)
	c.DeclareRepeat(flags)
	return c.run
}

// sampleTime is the interval between the first two measurements of a command. The second measurement is needed if
// the agent does not know the rates yet.
const sampleTime = time.Second

func (c *topCommand) run(ctx context.Context, args []string) error {
	if !slices.Contains([]string{"", "cpu", "memory"}, c.sortBy) {
		return command.Usage("sort-by %q: must be cpu or memory", c.sortBy)
	}
	node, processes := false, false
	if len(args) > 0 {
		switch args[0] {
		case "process", "processes", "ps":
			processes, args = true, args[1:]
		case "node", "nodes":
			node, args = true, args[1:]
		case "pod", "pods", "po":
			args = args[1:]
		}
	}
	if !slices.Contains([]string{"", "wide", "json", "yaml"}, c.output) {
		return command.Usage("output %q: must be wide, json or yaml", c.output)
	}
	switch {
	case processes && len(args) != 1:
		return command.Usage("top processes needs one pod: islet top processes POD")
	case processes:
		return terminal.Repeat(ctx, c.Tool, c.RepeatFlags, func(ctx context.Context) error { return c.showProcesses(ctx, args[0]) })
	case c.container != "":
		return command.Usage("-c is only valid for islet top processes POD")
	}
	return terminal.Repeat(ctx, c.Tool, c.RepeatFlags, func(ctx context.Context) error { return c.printOnce(ctx, node, args) })
}

func (c *topCommand) printOnce(ctx context.Context, node bool, args []string) error {
	sum, err := c.measureRates(ctx, node)
	switch {
	case err != nil:
		return err
	case node:
		return c.showNode(ctx, &sum.Node)
	}
	shown, err := c.choosePods(ctx, sum.Pods, args)
	if err != nil {
		return err
	}
	c.sort(shown)
	if c.output != "" && c.output != "wide" {
		return terminal.PrintObject(c.Tool, c.output, shown)
	}
	c.addPodRows(shown)
	return nil
}

// measureRates requests the figures. If a rate is not known yet, it requests them again after sampleTime.
func (c *topCommand) measureRates(ctx context.Context, node bool) (*stats.Summary, error) {
	sum, err := c.requestSummary(ctx, node)
	if err != nil {
		return nil, err
	}
	known := func(cpu *stats.CPUStats) bool {
		return cpu == nil || cpu.UsageCoreNanoSeconds == nil || cpu.UsageNanoCores != nil
	}
	unknown := slices.ContainsFunc(sum.Pods, func(p stats.PodStats) bool { return !known(p.CPU) })
	first := c.lastPods == nil && c.storeCounters(sum)
	if known(sum.Node.CPU) && !unknown && !first {
		return sum, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(sampleTime):
	}
	return c.requestSummary(ctx, node)
}

// requestSummary requests the summary of the node and its pods once.
func (c *topCommand) requestSummary(ctx context.Context, node bool) (*stats.Summary, error) {
	var sum stats.Summary
	if err := client.Get(ctx, c.Tool, api.PathStats, &sum); err != nil {
		return nil, err
	}
	if c.output == "wide" && !node {
		if err := c.readDisks(ctx); err != nil {
			return nil, err
		}
	}
	return &sum, nil
}

func (c *topCommand) nodeTable(n *stats.NodeStats) {
	var out terminal.Table
	if !c.noHeaders {
		out.AddRow("NAME", "CPU(cores)", "MEMORY(bytes)", "MEMORY FREE", "DISK USED", "DISK FREE")
	}
	row := []string{n.NodeName, formatCores(n.CPU), formatMemory(n.Memory), "-", "-", "-"}
	if n.Memory != nil && n.Memory.AvailableBytes != nil {
		row[3] = api.FormatSize(*n.Memory.AvailableBytes)
	}
	if fs := n.Fs; fs != nil && fs.UsedBytes != nil && fs.AvailableBytes != nil {
		row[4], row[5] = api.FormatSize(*fs.UsedBytes), api.FormatSize(*fs.AvailableBytes)
	}
	out.AddRow(row...)
	out.Print(c.Out)
}

func (c *topCommand) sort(shown []stats.PodStats) {
	sorting.By(shown, func(a, b stats.PodStats) int {
		byName := cmp.Or(cmp.Compare(a.PodRef.Namespace, b.PodRef.Namespace), cmp.Compare(a.PodRef.Name, b.PodRef.Name))
		switch c.sortBy {
		case "cpu":
			return cmp.Or(cmp.Compare(nanoCores(b.CPU), nanoCores(a.CPU)), byName)
		case "memory":
			return cmp.Or(cmp.Compare(workingSet(b.Memory), workingSet(a.Memory)), byName)
		}
		return byName
	})
}

func (c *topCommand) addPodRows(shown []stats.PodStats) {
	var out terminal.Table
	add := func(ns, pod, container string, cpu, mem string, more ...string) {
		row := []string{pod}
		if c.all {
			row = []string{ns, pod}
		}
		if c.containers {
			row = append(row, container)
		}
		out.AddRow(append(append(row, cpu, mem), more...)...)
	}
	wide := func(*stats.PodStats) []string { return nil }
	var titles []string
	if c.output == "wide" {
		titles, wide = append([]string{"DISK", "READ/s", "WRITE/s", "IN/s", "OUT/s"}, waitTitles...), c.wideColumns
		if c.containers { // containers share the network of their pod
			titles = append([]string{"DISK", "READ/s", "WRITE/s"}, waitTitles...)
		}
	}
	if !c.noHeaders {
		add("NAMESPACE", "NAME", "CONTAINER", "CPU(cores)", "MEMORY(bytes)", titles...)
	}
	for _, p := range shown {
		if !c.containers {
			add(p.PodRef.Namespace, p.PodRef.Name, "", formatCores(p.CPU), formatMemory(p.Memory), wide(&p)...)
			continue
		}
		sorting.By(p.Containers, func(a, b stats.ContainerStats) int { return cmp.Compare(a.Name, b.Name) })
		for _, k := range p.Containers {
			add(p.PodRef.Namespace, p.PodRef.Name, k.Name, formatCores(k.CPU), formatMemory(k.Memory), c.wideContainer(&p, &k)...)
		}
	}
	out.Print(c.Out)
	c.rememberPods(shown)
}

// choosePods returns the pods with the given names. Without names, it returns all pods of the namespace.
func (c *topCommand) choosePods(ctx context.Context, all []stats.PodStats, args []string) ([]stats.PodStats, error) {
	selector, err := c.ParseSelector()
	if err != nil {
		return nil, err
	}
	if selector != nil { // the pods in the summary have no labels
		pods, err := client.ListPods(ctx, c.Tool)
		if err != nil {
			return nil, err
		}
		has := map[string]labels.Set{}
		for _, p := range pods {
			has[string(p.UID)] = p.Labels
		}
		all = slices.DeleteFunc(all, func(p stats.PodStats) bool { return !selector.Matches(has[p.PodRef.UID]) })
	}
	if len(args) == 0 {
		ns := cmp.Or(c.Namespace, v1.NamespaceDefault)
		return slices.DeleteFunc(all, func(p stats.PodStats) bool { return !c.all && p.PodRef.Namespace != ns }), nil
	}
	pods := make([]v1.Pod, len(all))
	for i, p := range all {
		pods[i].Namespace, pods[i].Name = p.PodRef.Namespace, p.PodRef.Name
	}
	var out []stats.PodStats
	for _, a := range args {
		pod, err := client.ChoosePod(pods, c.Namespace, a)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(p stats.PodStats) bool {
			return p.PodRef.Namespace == pod.Namespace && p.PodRef.Name == pod.Name
		})
		out = append(out, all[i])
	}
	return out, nil
}

func nanoCores(c *stats.CPUStats) uint64 {
	if c == nil || c.UsageNanoCores == nil {
		return 0
	}
	return *c.UsageNanoCores
}

func workingSet(m *stats.MemoryStats) uint64 {
	if m == nil || m.WorkingSetBytes == nil {
		return 0
	}
	return *m.WorkingSetBytes
}

// formatCores formats CPU as kubectl does, in thousandths of a core.
func formatCores(c *stats.CPUStats) string {
	if c == nil || c.UsageNanoCores == nil {
		return "-"
	}
	return fmt.Sprintf("%dm", (*c.UsageNanoCores+999_999)/1_000_000)
}

func formatMemory(m *stats.MemoryStats) string {
	if m == nil || m.WorkingSetBytes == nil {
		return "-"
	}
	return fmt.Sprintf("%dMi", *m.WorkingSetBytes>>20)
}
