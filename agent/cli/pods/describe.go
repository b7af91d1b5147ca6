package pods

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/objects"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// Describe sets up islet describe.
func Describe(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	var p client.PodFlag
	p.Declare(flags)
	return func(ctx context.Context, args []string) error {
		if names, ok := objects.ParseNames(args, p.Namespace); ok {
			if len(names) == 0 {
				return command.Usage("describe needs a name: islet describe %s NAME", args[0])
			}
			return objects.Describe(ctx, t, names)
		}
		if len(args) == 0 {
			return command.Usage("describe needs a pod: islet describe POD")
		}
		pods, err := client.ListPods(ctx, t)
		if err != nil {
			return err
		}
		for i, a := range args {
			pod, err := client.ChoosePod(pods, p.Namespace, a)
			if err != nil {
				return err
			}
			var more api.Details
			if err := client.Get(ctx, t, api.PathDetails+"/"+string(pod.UID), &more); err != nil {
				return err
			}
			if i > 0 {
				fmt.Fprint(t.Out, "\n\n")
			}
			describe(t.Out, pod, more.Origin, t.Now())
			writeDetails(terminal.NewPage(t), &more, t.Now())
		}
		return nil
	}
}

// describe prints a pod. The parameter origin is the file, URL, command or API server that the pod comes from. If the
// origin is unknown, the parameter is "".
func describe(w io.Writer, pod *v1.Pod, origin string, now time.Time) {
	p := terminal.Page{Out: w}
	line := func(name, format string, args ...any) { p.WriteLine(0, terminal.PageColumn, name, format, args...) }
	line("Name", "%s", pod.Name)
	line("Namespace", "%s", pod.Namespace)
	if origin != "" {
		line("Origin", "%s", origin)
	}
	line("Priority", "%d", value(pod.Spec.Priority))
	if c := pod.Spec.PriorityClassName; c != "" {
		line("Priority Class Name", "%s", c)
	}
	if s := pod.Spec.ServiceAccountName; s != "" {
		line("Service Account", "%s", s)
	}
	line("Node", "%s", strings.TrimSuffix(cmp.Or(pod.Spec.NodeName, "<none>")+"/"+pod.Status.HostIP, "/"))
	if t := pod.Status.StartTime; t != nil {
		line("Start Time", "%s", t.Format(time.RFC1123Z))
	}
	p.WritePairs("Labels", pod.Labels, "=")
	p.WritePairs("Annotations", pod.Annotations, ": ")
	if t := pod.DeletionTimestamp; t != nil {
		line("Status", "Terminating (lasts %s)", api.FormatAge(t.Time, now))
		line("Termination Grace Period", "%ds", value(pod.DeletionGracePeriodSeconds))
	} else {
		line("Status", "%s", pod.Status.Phase)
	}
	if pod.Status.Reason != "" {
		line("Reason", "%s", pod.Status.Reason)
	}
	if pod.Status.Message != "" {
		line("Message", "%s", pod.Status.Message)
	}
	line("IP", "%s", pod.Status.PodIP)
	if len(pod.Status.PodIPs) == 0 {
		line("IPs", "<none>")
	} else {
		fmt.Fprintln(w, "IPs:")
		for _, ip := range pod.Status.PodIPs {
			fmt.Fprintf(w, "  IP:  %s\n", printable.Line(ip.IP))
		}
	}
	writeContainers(p, "Init Containers", pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	writeContainers(p, "Containers", pod.Spec.Containers, pod.Status.ContainerStatuses)
	writeContainers(p, "Ephemeral Containers", ephemeralContainers(pod), pod.Status.EphemeralContainerStatuses)
	writeConditions(p, pod.Status.Conditions)
	writeVolumes(p, pod.Spec.Volumes)
	line("QoS Class", "%s", cmp.Or(string(pod.Status.QOSClass), "<unknown>"))
	p.WritePairs("Node-Selectors", pod.Spec.NodeSelector, "=")
	writeTolerations(p, pod.Spec.Tolerations)
}

// ephemeralContainers returns the pod's ephemeral containers.
func ephemeralContainers(pod *v1.Pod) (out []v1.Container) {
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Ephemeral {
			out = append(out, *c)
		}
	}
	return out
}

func value[T int32 | int64](v *T) T {
	if v == nil {
		return 0
	}
	return *v
}

func writeConditions(p terminal.Page, list []v1.PodCondition) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(p.Out, "Conditions:")
	t := terminal.Table{Indent: "  "}
	t.AddRow("Type", "Status", "Reason")
	for _, c := range list {
		t.AddRow(string(c.Type), string(c.Status), strings.TrimSuffix(c.Reason+": "+c.Message, ": "))
	}
	t.Print(p.Out)
}

func writeTolerations(p terminal.Page, list []v1.Toleration) {
	if len(list) == 0 {
		p.WriteLine(0, terminal.PageColumn, "Tolerations", "<none>")
		return
	}
	head := "Tolerations:"
	for _, t := range list {
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		if t.Effect != "" {
			text += ":" + string(t.Effect)
		}
		if t.Operator == v1.TolerationOpExists && t.Value == "" {
			text = strings.TrimPrefix(text+" op=Exists", ":")
		}
		if t.TolerationSeconds != nil {
			text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
		}
		fmt.Fprintf(p.Out, "%-*s%s\n", terminal.PageColumn, head, printable.Line(strings.TrimSpace(text)))
		head = ""
	}
}

func writeVolumes(p terminal.Page, list []v1.Volume) {
	if len(list) == 0 {
		p.WriteLine(0, terminal.PageColumn, "Volumes", "<none>")
		return
	}
	fmt.Fprintln(p.Out, "Volumes:")
	for _, v := range list {
		fmt.Fprintf(p.Out, "  %s:\n", printable.Line(v.Name))
		line := func(name, format string, args ...any) { p.WriteLine(2, containerColumn-5, name, format, args...) }
		switch {
		case v.EmptyDir != nil:
			line("Type", "EmptyDir (a temporary directory that shares a pod's lifetime)")
			line("Medium", "%s", v.EmptyDir.Medium)
			limit := "<unset>"
			if v.EmptyDir.SizeLimit != nil {
				limit = v.EmptyDir.SizeLimit.String()
			}
			line("SizeLimit", "%s", limit)
		case v.HostPath != nil:
			line("Type", "HostPath (bare host directory volume)")
			line("Path", "%s", v.HostPath.Path)
			kind := ""
			if v.HostPath.Type != nil {
				kind = string(*v.HostPath.Type)
			}
			line("HostPathType", "%s", kind)
		case v.ConfigMap != nil:
			line("Type", "ConfigMap (a volume populated by a ConfigMap)")
			line("Name", "%s", v.ConfigMap.Name)
		case v.Secret != nil:
			line("Type", "Secret (a volume populated by a Secret)")
			line("SecretName", "%s", v.Secret.SecretName)
		case v.Projected != nil:
			line("Type", "Projected (a volume that contains injected data from multiple sources)")
		case v.DownwardAPI != nil:
			line("Type", "DownwardAPI (a volume populated by information about the pod)")
		case v.PersistentVolumeClaim != nil:
			line("Type", "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)")
			line("ClaimName", "%s", v.PersistentVolumeClaim.ClaimName)
		default:
			line("Type", "other")
		}
	}
}
