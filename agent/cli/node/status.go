package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/islet-edge/islet/agent/cli/change"
	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// Status sets up islet status.
func Status(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	output := flags.StringP("output", "o", "", "json or yaml")
	var again terminal.RepeatFlags
	again.DeclareRepeat(flags)
	return func(ctx context.Context, _ []string) error {
		err := terminal.Repeat(ctx, t, again, func(ctx context.Context) error {
			err := showStatus(ctx, t, *output)
			if bad := (command.ExitError{}); again.Watch && errors.As(err, &bad) && bad.Err == nil {
				return nil // with -w, a problem in the status does not end the command
			}
			return err
		})
		return err
	}
}

func showStatus(ctx context.Context, t *command.Tool, output string) error {
	{
		var st api.Status
		if err := client.Get(ctx, t, api.PathStatus, &st); err != nil {
			return err
		}
		attention := api.FindAttention(&st)
		switch output {
		case "":
			printStatus(t, &st)
			printWarnings(t, &st)
			if len(attention) > 0 {
				fmt.Fprintln(t.Out, "\n"+terminal.Paint(t, terminal.Yellow, "Needs attention:"))
				for _, a := range attention {
					podstate.PrintAttention(t.Out, a)
				}
			}
			printNotes(t, &st)
		default:
			if err := terminal.PrintObject(t, output, st); err != nil {
				return err
			}
		}
		if len(attention) > 0 {
			return command.ExitWith(command.ExitFailed, nil)
		}
		return nil
	}
}

// printStatus prints the status, one item per line.
func printStatus(t *command.Tool, st *api.Status) {
	var out terminal.Table
	row := func(name, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		out.AddColored(map[int]terminal.Colour{1: terminal.ColourIfOn(t, alarmColour(text))}, name+":", text)
	}
	row("Node", "%s", st.Node)
	if len(st.Addresses) > 0 {
		row("Addresses", "%s", strings.Join(st.Addresses, ", "))
	}
	ready := "yes"
	if len(st.NotReady) > 0 || !st.Runtime.Ready {
		ready = "NO"
	}
	row("Ready", "%s", ready)
	if c := st.Cluster; c != nil {
		row("Control plane", "%s", clusterText(c, st.Now))
		row("Certificates", "%s", certificatesText(c, st.Now))
	}
	row("Agent", "islet %s, up %s", st.Version, api.FormatAge(st.Started, st.Now))
	switch {
	case st.Received != "":
		row("Configuration", "%s (islet config show); the node's own: %s", printable.Line(st.Received), change.FilesText(st.Files))
	case st.Files != nil:
		row("Configuration", "%s", change.FilesText(st.Files))
	}
	row("Clock", "%s", st.Now.Format("2006-01-02 15:04:05 MST"))
	row("Runtime", "%s", RuntimeText(st.Runtime))
	row("Network", "%s", networkText(st.Network))
	if r := st.Network.Repairs; r != nil {
		row("Network repaired", "%s, the last one %s ago: %s", api.Pluralize(r.Count, "item"), api.FormatAge(r.Last, st.Now), r.What)
	}
	row("Pods", "%s", podsText(st.Pods))
	for _, s := range st.Sources {
		row("Source "+s.Name, "%s", sourceText(s))
	}
	for _, i := range st.Imports {
		if i.Error == "" {
			text := i.Status
			if i.Total > 0 {
				text += fmt.Sprintf(" %s of %s", api.FormatSize(i.Current), api.FormatSize(i.Total))
			}
			row("Import "+i.Ref, "%s", text)
		}
	}
	for _, d := range st.Disks {
		row("Disk "+d.Path, "%s of %s free", api.FormatSize(d.Free), api.FormatSize(d.Total))
	}
	if f := st.Flash; f != nil {
		row("Written today", "%s", flashText(f))
	}
	if st.Store.Path != "" {
		row("Store", "%s", st.Store.Path)
	}
	out.Print(t.Out)
}

// flashText describes the disk writes by cause.
func flashText(f *api.Flash) string {
	w := f.Today
	text := fmt.Sprintf("%s (database %s, images %s, logs %s, pods %s)", api.FormatSize(w.Stack), api.FormatSize(w.Database),
		api.FormatSize(w.Images), api.FormatSize(w.Logs), api.FormatSize(w.Pods))
	if f.Budget > 0 {
		text += " of " + api.FormatSize(f.Budget)
	}
	if f.Device != "" {
		text += fmt.Sprintf("; %s in all to %s", api.FormatSize(w.Device), f.Device)
	}
	if f.Days > 0 {
		text += fmt.Sprintf("; %s a day lately", api.FormatSize(f.Mean.Stack))
	}
	return text
}

// maxWarnings is the maximum number of warnings of the node that are shown.
const maxWarnings = 5

// printWarnings prints the node's recent warnings.
func printWarnings(t *command.Tool, st *api.Status) {
	bad := slices.DeleteFunc(slices.Clone(st.Events), func(e api.Event) bool { return e.Type != "Warning" })
	if len(bad) == 0 {
		return
	}
	fmt.Fprintln(t.Out, "\nRecent warnings of the node:")
	podstate.WriteEvents(terminal.NewPage(t), bad[max(0, len(bad)-maxWarnings):], st.Now)
}

// RuntimeText describes a container runtime.
func RuntimeText(r api.Runtime) string {
	parts := []string{strings.TrimSpace(cmp.Or(r.Name, "unknown") + " " + r.Version)}
	for _, p := range []struct{ what, value string }{
		{"at ", r.Endpoint}, {"", r.OCIRuntime}, {
			"cgroup v", strings.TrimPrefix(r.CgroupVersion, "v"),
		}, {"", r.Snapshotter}, {"pods per shim: ", r.ShimPods}} {
		if p.value != "" {
			parts = append(parts, p.what+p.value)
		}
	}
	if !r.Ready {
		parts = append(parts, "NOT READY")
	}
	return strings.Join(parts, ", ")
}

func networkText(n api.Network) string {
	text := cmp.Or(n.Config, "ready")
	if len(n.PodCIDRs) > 0 {
		text += ", " + strings.Join(n.PodCIDRs, " ")
	}
	if !n.Ready {
		text += ", NOT READY"
	}
	return text
}

func clusterText(c *api.Cluster, now time.Time) string {
	link := strings.ToLower(c.Link)
	if c.Link == "Down" {
		link = "DOWN"
	}
	text := fmt.Sprintf("%s, %s for %s", cmp.Or(c.Server, "no server known"), link, api.FormatAge(c.Since, now))
	if c.Reason != "" {
		text += ", " + c.Reason
	}
	if c.Pending > 0 {
		text += fmt.Sprintf(", %s to report", api.Pluralize(c.Pending, "pod"))
	}
	return text
}

// certificatesText describes the existing certificates. The serving certificate may not exist, because the agent
// requests it only when it needs it.
func certificatesText(c *api.Cluster, now time.Time) string {
	var all []string
	for _, cert := range []struct {
		what  string
		until time.Time
	}{{"client", c.ClientCertificate}, {"serving", c.ServingCertificate}} {
		day := cert.until.UTC().Format("2006-01-02 15:04 UTC")
		switch {
		case cert.until.IsZero():
		case now.After(cert.until):
			all = append(all, cert.what+" EXPIRED "+day)
		default:
			all = append(all, fmt.Sprintf("%s until %s (%s)", cert.what, day, duration.HumanDuration(cert.until.Sub(now))))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func podsText(p api.PodCounts) string {
	text := fmt.Sprintf("%d, %d ready", p.Total, p.Ready)
	for _, c := range []struct {
		n    int
		what string
	}{{p.Pending, "pending"}, {p.Succeeded, "succeeded"}, {p.Failed, "failed"}, {p.Stuck, "stuck"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

func sourceText(s api.Source) string {
	text := api.Pluralize(s.Pods, "pod")
	if s.Origin != "" {
		text += " from " + s.Origin
	}
	if !s.Spoken {
		text += " (as stored; it has not answered yet)"
	}
	if n := len(s.Problems); n > 0 {
		text += ", " + api.Pluralize(n, "problem")
	}
	return text
}

// alarmColour returns red for a text that reports a problem in capitals: NO, DOWN, EXPIRED, NOT READY.
func alarmColour(text string) terminal.Colour {
	for _, word := range []string{"DOWN", "EXPIRED", "NOT READY"} {
		if strings.Contains(text, word) {
			return terminal.Red
		}
	}
	if text == "NO" {
		return terminal.Red
	}
	return terminal.Plain
}
