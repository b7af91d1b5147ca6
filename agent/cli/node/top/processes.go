package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
	"github.com/islet-edge/islet/internal/sorting"
)

// showProcesses prints the processes of a pod. Their CPU usage is measured for the duration of
// sampleTime.
func (c *topCommand) showProcesses(ctx context.Context, name string) error {
	pod, err := client.FindPod(ctx, c.Tool, c.PodFlag, name)
	if err != nil {
		return err
	}
	if c.container != "" {
		if _, err := client.ChooseContainer(c.Tool, pod, c.container); err != nil {
			return err
		}
	}
	out, err := c.processes(ctx, pod)
	if err != nil {
		return err
	}
	if c.output == "json" || c.output == "yaml" {
		return terminal.PrintObject(c.Tool, c.output, out)
	}
	if len(out) == 0 {
		fmt.Fprintln(c.Stderr, "No running processes.")
		return nil
	}
	c.printProcesses(out)
	return nil
}

// processes returns the processes of a pod. The field CPU of each process is its CPU usage in the last sampleTime, in
// nanoseconds per second. With JSON and YAML, the field CPU is the CPU time since the start of the process.
func (c *topCommand) processes(ctx context.Context, pod *v1.Pod) ([]api.Process, error) {
	path := fmt.Sprintf("%s/%s/%s", api.PathProcesses, pod.Namespace, pod.Name)
	var first, second api.Processes
	if err := client.Get(ctx, c.Tool, path, &first); err != nil {
		return nil, err
	}
	total := first
	if c.output != "json" && c.output != "yaml" {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(sampleTime):
		}
		if err := client.Get(ctx, c.Tool, path, &second); err != nil {
			return nil, err
		}
		total = second
		before := map[int]time.Duration{}
		for _, p := range first.List {
			before[p.HostPID] = p.CPU
		}
		passed := max(second.At.Sub(first.At), time.Millisecond)
		for i := range total.List {
			p := &total.List[i]
			used, known := before[p.HostPID]
			if !known || p.CPU < used { // the process is new
				used = 0
			}
			p.CPU = time.Duration(float64(p.CPU-used) / passed.Seconds())
		}
	}
	if !total.Whole {
		fmt.Fprintf(c.Stderr, "Only %d processes of pod %s/%s are shown.\n", len(total.List), printable.Line(pod.Namespace),
			printable.Line(pod.Name))
	}
	return slices.DeleteFunc(total.List, func(p api.Process) bool { return c.container != "" && p.Container != c.container }), nil
}

func (c *topCommand) printProcesses(list []api.Process) {
	sorting.StableBy(list, func(a, b api.Process) int {
		byPID := cmp.Or(strings.Compare(a.Container, b.Container), cmp.Compare(a.HostPID, b.HostPID))
		switch c.sortBy {
		case "cpu":
			return cmp.Or(cmp.Compare(b.CPU, a.CPU), byPID)
		case "memory":
			return cmp.Or(cmp.Compare(b.Memory, a.Memory), byPID)
		}
		return byPID
	})
	var out terminal.Table
	if !c.noHeaders {
		out.AddRow("CONTAINER", "PID", "HOST PID", "UID", "STATE", "THREADS", "CPU(cores)", "MEMORY(bytes)", "AGE", "COMMAND")
	}
	width := maxCommandWidth
	if screen := terminal.Screen(c.Tool, c.Out); screen != nil {
		columns, _ := screen()
		width = max(columns-otherColumns, minCommandWidth)
	}
	for _, p := range list {
		out.AddRow(p.Container, fmt.Sprint(p.PID), fmt.Sprint(p.HostPID), fmt.Sprint(p.User), p.State, fmt.Sprint(p.Threads),
			fmt.Sprintf("%dm", p.CPU.Milliseconds()), fmt.Sprintf("%dMi", p.Memory>>20), api.FormatAge(c.Now().Add(-p.Age), c.Now()),
			c.shortenCommand(printable.Line(p.Command), width))
	}
	out.Print(c.Out)
}

// Widths of the column COMMAND.
const (
	maxCommandWidth = 200
	minCommandWidth = 20
	otherColumns    = 95 // about the width of the columns before COMMAND
)

// shortenCommand shortens a command to a width. With -o wide it returns the whole command.
func (c *topCommand) shortenCommand(text string, width int) string {
	if c.output == "wide" || terminal.TextWidth(text) <= width {
		return text
	}
	return terminal.ShortenEnd(text, width-3) + "..."
}
