package pods

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/printable"
)

// podsCommand implements islet pods.
type podsCommand struct {
	*command.Tool
	client.PodFlag
	client.SelectorFlag
	all, watch, noHeaders bool
	output                string
	table                 terminal.Table
	origins               podOrigins
}

// List sets up islet pods.
func List(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &podsCommand{Tool: t}
	flags.BoolVarP(&c.all, "all-namespaces", "A", false, "pods of every namespace")
	flags.StringVarP(&c.Namespace, "namespace", "n", "", `pods of this namespace (default "default")`)
	c.DeclareSelector(flags)
	flags.StringVarP(&c.output, "output", "o", "", "wide, json, yaml or name")
	flags.BoolVarP(&c.watch, "watch", "w", false, "then print each change")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "print no header")
	return c.run
}

func (c *podsCommand) run(ctx context.Context, args []string) error {
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, c.output) {
		return command.Usage("output %q: must be wide, json, yaml or name", c.output)
	}
	if _, err := c.ParseSelector(); err != nil {
		return err
	}
	c.origins.load = func() (all map[types.UID]string, err error) {
		return all, client.Get(ctx, c.Tool, api.PathOrigins, &all)
	}
	if c.watch {
		return c.followPods(ctx, args)
	}
	pods, err := client.ListPods(ctx, c.Tool)
	if err != nil {
		return err
	}
	shown, err := c.choosePods(pods, args)
	if err != nil {
		return err
	}
	if len(shown) == 0 && (c.output == "" || c.output == "wide") {
		where := "on this node"
		if c.Text != "" {
			where = fmt.Sprintf("match the labels %s", c.Text)
		} else if !c.all {
			where = fmt.Sprintf("in namespace %s", c.inNamespace())
			if len(pods) > 0 {
				where += fmt.Sprintf("; there are %d in others: use -A", len(pods))
			}
		}
		fmt.Fprintf(c.Stderr, "No pods %s.\n", printable.Line(where))
		return nil
	}
	return c.printPods(shown, len(args) == 1)
}

func (c *podsCommand) inNamespace() string {
	if c.Namespace == "" {
		return v1.NamespaceDefault
	}
	return c.Namespace
}

// choosePods returns the pods with the given names. Without names, it returns all pods of the namespace.
func (c *podsCommand) choosePods(pods []v1.Pod, args []string) ([]v1.Pod, error) {
	pods, err := c.SelectPods(pods)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return !c.all && p.Namespace != c.inNamespace() }), nil
	}
	var out []v1.Pod
	for _, a := range args {
		p, err := client.ChoosePod(pods, c.Namespace, a)
		if err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	return out, nil
}

// printPods prints pods in the requested format.
func (c *podsCommand) printPods(pods []v1.Pod, single bool) error {
	for i := range pods {
		pods[i].TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	}
	switch c.output {
	case "name":
		for _, p := range pods {
			fmt.Fprintf(c.Out, "pod/%s\n", printable.Line(p.Name))
		}
	case "json", "yaml":
		var object any = v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "List", APIVersion: "v1"}, Items: pods}
		if single && len(pods) == 1 {
			object = pods[0]
		}
		return terminal.PrintObject(c.Tool, c.output, object)
	default:
		c.printHeader()
		for i := range pods {
			c.printPod(&pods[i])
		}
		c.table.Print(c.Out)
	}
	return nil
}

func (c *podsCommand) printHeader() {
	if c.noHeaders {
		return
	}
	row := []string{"NAME", "READY", "STATUS", "RESTARTS", "AGE"}
	if c.all {
		row = append([]string{"NAMESPACE"}, row...)
	}
	if c.output == "wide" {
		row = append(row, "IP", "NODE", "SOURCE", "ORIGIN")
	}
	c.table.AddRow(row...)
}

func (c *podsCommand) printPod(p *v1.Pod) {
	now := c.Now()
	s := podstate.Summarize(p, now)
	row, status := []string{p.Name, s.Ready, s.Status, s.Restarts, api.FormatAge(podstate.FirstSeen(p), now)}, 2
	if c.all {
		row, status = append([]string{p.Namespace}, row...), 3
	}
	if c.output == "wide" {
		for _, value := range []string{p.Status.PodIP, p.Spec.NodeName, p.Annotations[keys.ConfigSource], c.origins.of(p.UID)} {
			row = append(row, cmp.Or(value, "<none>"))
		}
	}
	c.table.AddColored(map[int]terminal.Colour{status: terminal.ColourIfOn(c.Tool, podstate.StatusColour(s.Status))}, row...)
}

// followPods prints the pods and then each change until it is interrupted.
func (c *podsCommand) followPods(ctx context.Context, args []string) error {
	var first []v1.Pod
	synced := false
	return client.Stream(ctx, c.Tool, http.MethodGet, api.PathPods, nil, nil, func(e api.PodEvent) (bool, error) {
		if e.Type == api.EventAlive {
			return false, nil
		}
		if e.Type == "SYNCED" {
			synced = true
			shown, err := c.choosePods(first, args)
			if err != nil {
				return true, err
			}
			return false, c.printPods(shown, false)
		}
		if !synced {
			first = append(first, *e.Pod)
			return false, nil
		}
		if shown, err := c.choosePods([]v1.Pod{*e.Pod}, args); err != nil || len(shown) == 0 {
			return false, nil // another pod
		}
		if c.output == "" || c.output == "wide" {
			c.origins.expect(e.Pod.UID)
			c.printPod(e.Pod)
			c.table.Print(c.Out)
			return false, nil
		}
		return false, c.printPods([]v1.Pod{*e.Pod}, true)
	})
}
