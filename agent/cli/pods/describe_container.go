package pods

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/printable"
)

// containerColumn is the column of the values of a container.
const containerColumn = 20

// writeContainers describes the containers of one kind.
func writeContainers(p terminal.Page, head string, list []v1.Container, statuses []v1.ContainerStatus) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(p.Out, "%s:\n", head)
	for i := range list {
		c := &list[i]
		fmt.Fprintf(p.Out, "  %s:\n", printable.Line(c.Name))
		at := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
		var st *v1.ContainerStatus
		if at >= 0 {
			st = &statuses[at]
		}
		writeContainer(p, c, st)
	}
}

func writeContainer(p terminal.Page, c *v1.Container, st *v1.ContainerStatus) {
	line := func(name, format string, args ...any) { p.WriteLine(2, containerColumn, name, format, args...) }
	if st != nil {
		line("Container ID", "%s", st.ContainerID)
	}
	line("Image", "%s", c.Image)
	if st != nil {
		line("Image ID", "%s", st.ImageID)
	}
	ports, hostPorts := portTexts(c.Ports)
	line("Port", "%s", ports)
	line("Host Port", "%s", hostPorts)
	writeList(p, "Command", c.Command)
	writeList(p, "Args", c.Args)
	if st != nil {
		writeState(p, "State", st.State)
		if st.LastTerminationState.Terminated != nil {
			writeState(p, "Last State", st.LastTerminationState)
		}
		line("Ready", "%s", titleCaseBool(st.Ready))
		line("Restart Count", "%d", st.RestartCount)
	}
	writeResources(p, "Limits", c.Resources.Limits)
	writeResources(p, "Requests", c.Resources.Requests)
	writeEnvironment(p, c)
	writeMounts(p, c.VolumeMounts)
}

func titleCaseBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func portTexts(list []v1.ContainerPort) (ports, hostPorts string) {
	var a, b []string
	for _, p := range list {
		a = append(a, fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol))
		b = append(b, fmt.Sprintf("%d/%s", p.HostPort, p.Protocol))
	}
	return cmp.Or(strings.Join(a, ", "), "<none>"), cmp.Or(strings.Join(b, ", "), "<none>")
}

// writeList writes the words of a command, one per line.
func writeList(p terminal.Page, name string, words []string) {
	if len(words) == 0 {
		return
	}
	fmt.Fprintf(p.Out, "    %s:\n", name)
	for _, w := range words {
		for _, l := range strings.Split(w, "\n") {
			fmt.Fprintf(p.Out, "      %s\n", printable.Line(l))
		}
	}
}

func writeState(p terminal.Page, name string, s v1.ContainerState) {
	line := func(name, format string, args ...any) { p.WriteLine(3, containerColumn, name, format, args...) }
	state := func(text string) { p.WriteLine(2, containerColumn, name, "%s", text) }
	switch {
	case s.Running != nil:
		state("Running")
		line("Started", "%s", s.Running.StartedAt.Format(time.RFC1123Z))
	case s.Waiting != nil:
		state("Waiting")
		if s.Waiting.Reason != "" {
			line("Reason", "%s", s.Waiting.Reason)
		}
		if s.Waiting.Message != "" {
			line("Message", "%s", s.Waiting.Message)
		}
	case s.Terminated != nil:
		t := s.Terminated
		state("Terminated")
		if t.Reason != "" {
			line("Reason", "%s", t.Reason)
		}
		if t.Message != "" {
			line("Message", "%s", t.Message)
		}
		line("Exit Code", "%d", t.ExitCode)
		if t.Signal > 0 {
			line("Signal", "%d", t.Signal)
		}
		line("Started", "%s", t.StartedAt.Format(time.RFC1123Z))
		line("Finished", "%s", t.FinishedAt.Format(time.RFC1123Z))
	default:
		state("Waiting")
	}
}

func writeResources(p terminal.Page, name string, list v1.ResourceList) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(p.Out, "    %s:\n", name)
	for _, r := range slices.Sorted(maps.Keys(list)) {
		q := list[r]
		p.WriteLine(3, containerColumn-3, string(r), "%s", q.String())
	}
}

func writeEnvironment(p terminal.Page, c *v1.Container) {
	if len(c.Env) == 0 && len(c.EnvFrom) == 0 {
		p.WriteLine(2, containerColumn, "Environment", "<none>")
		return
	}
	for _, from := range c.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			p.WriteLine(2, containerColumn, "Environment from", "%s (ConfigMap)", from.ConfigMapRef.Name)
		case from.SecretRef != nil:
			p.WriteLine(2, containerColumn, "Environment from", "%s (Secret)", from.SecretRef.Name)
		}
	}
	if len(c.Env) == 0 {
		return
	}
	fmt.Fprintln(p.Out, "    Environment:")
	longest := 0
	for _, e := range c.Env {
		longest = max(longest, len(e.Name))
	}
	for _, e := range c.Env {
		p.WriteLine(3, longest+9, e.Name, "%s", envText(e))
	}
}

func envText(e v1.EnvVar) string {
	switch from := e.ValueFrom; {
	case from == nil:
		return e.Value
	case from.FieldRef != nil:
		return fmt.Sprintf("(%s:%s)", from.FieldRef.APIVersion, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return fmt.Sprintf("(%s)", from.ResourceFieldRef.Resource)
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>", from.SecretKeyRef.Key, from.SecretKeyRef.Name)
	}
	return ""
}

func writeMounts(p terminal.Page, list []v1.VolumeMount) {
	if len(list) == 0 {
		p.WriteLine(2, containerColumn, "Mounts", "<none>")
		return
	}
	fmt.Fprintln(p.Out, "    Mounts:")
	for _, m := range list {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		if m.SubPath != "" {
			mode += fmt.Sprintf(",path=%q", m.SubPath)
		}
		fmt.Fprintf(p.Out, "      %s from %s (%s)\n", printable.Line(m.MountPath), printable.Line(m.Name), printable.Line(mode))
	}
}
