package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// KindNames returns the names of each kind on the command line.
func KindNames() map[string][]string {
	return map[string][]string{
		podspec.ConfigMap: {"configmap", "configmaps", "cm"},
		podspec.Secret:    {"secret", "secrets"},
		podspec.Claim:     {"persistentvolumeclaim", "persistentvolumeclaims", "pvc", "pvcs"},
	}
}

// kindOf returns the kind that has the given name on the command line. It returns "" if no kind has
// this name.
func kindOf(word string) string {
	for kind, words := range KindNames() {
		if slices.Contains(words, strings.ToLower(word)) {
			return kind
		}
	}
	return ""
}

// shortKind returns the printed form of a kind.
func shortKind(kind string) string {
	if kind == "" {
		return "pod"
	}
	return strings.ToLower(kind)
}

// A Name identifies an object.
type Name struct{ kind, namespace, name string }

// ParseNames parses arguments such as "secret wifi other" and "secret/wifi". It returns false if the arguments are
// names of pods instead of objects.
func ParseNames(args []string, namespace string) (names []Name, ok bool) {
	if len(args) == 0 {
		return nil, false
	}
	if kind := kindOf(args[0]); kind != "" {
		for _, a := range args[1:] {
			names = append(names, objectNamed(kind, namespace, a))
		}
		return names, true
	}
	for _, a := range args {
		word, rest, _ := strings.Cut(a, "/")
		kind := kindOf(word)
		if kind == "" || rest == "" {
			return nil, false
		}
		names = append(names, objectNamed(kind, namespace, rest))
	}
	return names, true
}

func objectNamed(kind, namespace, name string) Name {
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, rest
	}
	return Name{kind, cmp.Or(namespace, v1.NamespaceDefault), name}
}

// objectsCommand implements islet objects.
type objectsCommand struct {
	*command.Tool
	namespace      string
	all, noHeaders bool
	output         string
}

// List sets up islet objects.
func List(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	return (&objectsCommand{Tool: t}).setup(flags, "")
}

// ListKind sets up commands such as islet get secrets.
func ListKind(kind string) func(*command.Tool, *pflag.FlagSet) command.Runner {
	return func(t *command.Tool, flags *pflag.FlagSet) command.Runner {
		return (&objectsCommand{Tool: t}).setup(flags, kind)
	}
}

func (c *objectsCommand) setup(flags *pflag.FlagSet, kind string) command.Runner {
	flags.BoolVarP(&c.all, "all-namespaces", "A", false, "objects of every namespace")
	flags.StringVarP(&c.namespace, "namespace", "n", "", `objects of this namespace (default "default")`)
	flags.StringVarP(&c.output, "output", "o", "", "wide, json, yaml or name")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "only the rows")
	return func(ctx context.Context, args []string) error {
		if kind != "" {
			args = append([]string{kind}, args...)
		}
		return c.run(ctx, args)
	}
}

func (c *objectsCommand) run(ctx context.Context, args []string) error {
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, c.output) {
		return command.Usage("output %q: must be wide, json, yaml or name", c.output)
	}
	all, err := listObjects(ctx, c.Tool)
	if err != nil {
		return err
	}
	names, ok := ParseNames(args, c.namespace)
	if len(args) > 0 && !ok {
		return command.Usage("islet objects needs a kind (configmap, secret, pvc) and names, or KIND/NAME")
	}
	var shown []api.Object
	switch {
	case len(names) > 0:
		for _, n := range names {
			found, err := n.findObjects(all)
			if err != nil {
				return err
			}
			shown = append(shown, found...)
		}
	default:
		kind := ""
		if len(args) > 0 {
			kind = kindOf(args[0])
		}
		shown = slices.DeleteFunc(all, func(o api.Object) bool {
			return kind != "" && o.Kind != kind || !c.all && o.Namespace != cmp.Or(c.namespace, v1.NamespaceDefault)
		})
	}
	return c.printObjects(shown)
}

// listObjects requests all objects from the agent.
func listObjects(ctx context.Context, t *command.Tool) (all []api.Object, err error) {
	err = client.Get(ctx, t, api.PathObjects, &all)
	return all, err
}

// findObjects returns the objects with the name n. There may be several, because each source may
// have an object of this name.
func (n Name) findObjects(all []api.Object) ([]api.Object, error) {
	found := slices.DeleteFunc(slices.Clone(all), func(o api.Object) bool {
		return o.Kind != n.kind || o.Namespace != n.namespace || o.Name != n.name
	})
	if len(found) == 0 {
		return nil, command.ExitWith(command.ExitNotFound, fmt.Errorf("%s %q not found in namespace %s", shortKind(n.kind), n.name,
			n.namespace))
	}
	return found, nil
}

func (c *objectsCommand) printObjects(shown []api.Object) error {
	switch c.output {
	case "json", "yaml":
		return terminal.PrintObject(c.Tool, c.output, shown)
	case "name":
		for _, o := range shown {
			fmt.Fprintf(c.Out, "%s/%s\n", printable.Line(shortKind(o.Kind)), printable.Line(o.Name))
		}
		return nil
	}
	if len(shown) == 0 {
		fmt.Fprintln(c.Stderr, "No ConfigMaps, Secrets or claims of manifests on this node.")
		return nil
	}
	var t terminal.Table
	row := func(namespace string, cells ...string) {
		if c.all {
			cells = append([]string{namespace}, cells...)
		}
		t.AddRow(cells...)
	}
	if !c.noHeaders {
		head := []string{"NAME", "CONTENT", "SOURCE", "USED BY", "AGE"}
		if c.output == "wide" {
			head = append(head, "ORIGIN")
		}
		row("NAMESPACE", head...)
	}
	for _, o := range shown {
		cells := []string{shortKind(o.Kind) + "/" + o.Name, contentOf(&o), sourceOf(&o), usersOf(&o), api.FormatAge(o.Created, c.Now())}
		if c.output == "wide" {
			cells = append(cells, cmp.Or(o.Origin, "<none>"))
		}
		row(o.Namespace, cells...)
	}
	t.Print(c.Out)
	return nil
}

// contentOf summarizes an object's content.
func contentOf(o *api.Object) string {
	c := o.Claim
	switch {
	case c == nil:
		return api.Pluralize(len(o.Keys), "key")
	case c.Size == 0 && c.Used >= 0:
		return api.FormatSize(c.Used)
	case c.Size == 0:
		return "data"
	case c.Used >= 0:
		return api.FormatSize(c.Used) + " of " + api.FormatSize(c.Size)
	}
	return api.FormatSize(c.Size)
}

func sourceOf(o *api.Object) string {
	switch {
	case o.Gone:
		return o.Source + " (removed)"
	case o.Source == "":
		return "none (unused)"
	}
	return o.Source
}

func usersOf(o *api.Object) string {
	if len(o.Pods) == 0 {
		return "<none>"
	}
	text := strings.Join(o.Pods[:min(len(o.Pods), maxUsers)], ",")
	if n := len(o.Pods) - maxUsers; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// maxUsers is the maximum number of pods that one row lists.
const maxUsers = 3

// Describe implements islet describe for objects. It does not show the values of Secrets.
func Describe(ctx context.Context, t *command.Tool, names []Name) error {
	all, err := listObjects(ctx, t)
	if err != nil {
		return err
	}
	first := true
	for _, n := range names {
		found, err := n.findObjects(all)
		if err != nil {
			return err
		}
		for i := range found {
			if !first {
				fmt.Fprint(t.Out, "\n\n")
			}
			first = false
			describeObject(t, &found[i])
		}
	}
	return nil
}

func describeObject(t *command.Tool, o *api.Object) {
	p := terminal.NewPage(t)
	line := func(name, format string, args ...any) { p.WriteLine(0, terminal.PageColumn, name, format, args...) }
	line("Name", "%s", o.Name)
	line("Namespace", "%s", o.Namespace)
	line("Kind", "%s", o.Kind)
	if o.Type != "" {
		line("Type", "%s", o.Type)
	}
	p.WritePairs("Labels", o.Labels, "=")
	line("Source", "%s", sourceOf(o))
	line("Origin", "%s", cmp.Or(o.Origin, "<none>"))
	line("Age", "%s", api.FormatAge(o.Created, t.Now()))
	if o.Immutable {
		line("Immutable", "true")
	}
	if c := o.Claim; c != nil {
		line("Directory", "%s", c.Path)
		if !c.Exists {
			line("Created", "no: it is created for the first pod that uses it")
		}
		if c.Size > 0 {
			limit := "not enforced: its file system has no project quotas"
			if c.Enforced {
				limit = "enforced by the file system"
			}
			line("Size", "%s (%s)", api.FormatSize(c.Size), limit)
		}
		if c.Used >= 0 {
			line("Used", "%s", api.FormatSize(c.Used))
		}
	}
	for i, k := range slices.Sorted(maps.Keys(o.Keys)) {
		if i == 0 {
			fmt.Fprintln(t.Out, "Keys:")
		}
		p.WriteLine(1, terminal.PageColumn, k, "%d bytes", o.Keys[k])
	}
	line("Used By", "%s", cmp.Or(strings.Join(o.Pods, ", "), "<none>"))
}

// deleteObjects requests the removal of applied objects.
func (c *deleteCommand) deleteObjects(ctx context.Context, names []Name) error {
	var errs []error
	for _, n := range names {
		q := url.Values{}
		if c.data {
			q.Set("data", "1")
		}
		var done api.Deleted
		err := client.Call(ctx, c.Tool, http.MethodDelete, api.PathObjects+"/"+n.kind+"/"+n.namespace+"/"+n.name, q, nil, &done)
		if command.CodeOf(err) == command.ExitNotFound && c.ignoreNotFound {
			continue
		}
		if err == nil {
			err = c.reportDeleted([]api.Deleted{done}, nil)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
