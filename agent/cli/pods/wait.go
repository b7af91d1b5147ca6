package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/internal/printable"
)

// waitCommand implements islet wait.
type waitCommand struct {
	*command.Tool
	client.PodFlag
	client.SelectorFlag
	all, anywhere bool
	goal          string
	timeout       time.Duration
	until         goal
	targets       []target               // the pods to wait for, once they are known
	chosen        bool                   // targets is complete
	failed        []error                // the errors of pods that cannot reach the state any more
	ended         []types.NamespacedName // the pods of these errors that still exist
}

// A target is a pod that islet wait has not yet seen in the requested state.
type target struct {
	types.NamespacedName
	uid  types.UID // the pod's UID when the wait began
	last string    // the last known status of the pod
}

// defaultWait is kubectl's default for --timeout.
const defaultWait = 30 * time.Second

// Wait sets up islet wait.
func Wait(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &waitCommand{Tool: t}
	flags.StringVar(&c.goal, "for", "Ready",
		"Ready or another condition, condition=NAME[=VALUE], jsonpath=EXPRESSION[=VALUE], Created, Deleted")
	flags.DurationVar(&c.timeout, "timeout", defaultWait, "maximum time to wait; 0 checks once, a negative time is a week")
	c.Declare(flags)
	c.DeclareSelector(flags)
	flags.BoolVar(&c.all, "all", false, "all pods of the namespace")
	flags.BoolVarP(&c.anywhere, "all-namespaces", "A", false, "with --all or -l: in every namespace")
	return c.run
}

func (c *waitCommand) run(ctx context.Context, args []string) error {
	many := c.all || c.Text != ""
	switch {
	case len(args) == 0 && !many:
		return command.Usage("wait needs a pod: islet wait --for=Ready POD, -l LABELS or --all")
	case len(args) > 0 && many:
		return command.Usage("--all and -l cannot be combined with names of pods")
	}
	var err error
	if c.until, err = parseGoal(c.goal); err != nil {
		return err
	}
	if _, err := c.ParseSelector(); err != nil {
		return err
	}
	if c.timeout < 0 {
		c.timeout = podstate.MaxWait
	}
	err = podstate.Watch(ctx, c.Tool, c.timeout, func(pods []*v1.Pod) (bool, error) { return c.check(pods, args) })
	unmet := c.ended
	if errors.Is(err, podstate.ErrTimeout) {
		for _, t := range c.targets {
			unmet = append(unmet, t.NamespacedName)
		}
		err = c.timedOut(args)
	}
	podstate.PrintTroubles(ctx, c.Tool, unmet)
	return err
}

// timedOut returns the error for each pod that is not in the requested state.
func (c *waitCommand) timedOut(args []string) error {
	if !c.chosen {
		return command.ExitWith(command.ExitNotFound, fmt.Errorf("timed out waiting for a pod %s to be created",
			strings.Join(args, ", ")+c.Text))
	}
	errs := c.failed
	for _, t := range c.targets {
		errs = append(errs, fmt.Errorf("timed out waiting for the condition %s on pod %s: it is %s; see islet describe %s",
			c.until.text, t.NamespacedName, cmp.Or(t.last, "unknown"), t.NamespacedName))
	}
	return errors.Join(errs...)
}

// check prints the targets that have reached the requested state. It reports whether all targets
// have reached this state.
func (c *waitCommand) check(pods []*v1.Pod, args []string) (done bool, err error) {
	if !c.chosen {
		if c.targets, err = c.choose(pods, args); err != nil {
			return false, err
		}
		if c.chosen = len(c.targets) > 0 || c.until.kind != goalCreated; !c.chosen {
			return false, nil
		}
	}
	var left []target
	for _, t := range c.targets {
		pod := current(pods, t.NamespacedName)
		if pod != nil {
			t.last = podstate.Explain(pod, c.Now())
		}
		met, err := c.until.reached(pod, t.uid)
		switch {
		case err != nil:
			c.failed, c.ended = append(c.failed, err), append(c.ended, t.NamespacedName)
		case pod == nil && !met:
			c.failed = append(c.failed, command.ExitWith(command.ExitNotFound, fmt.Errorf("pod %s is gone", t.NamespacedName)))
		case met:
			fmt.Fprintf(c.Out, "pod/%s condition met\n", printable.Line(t.Name))
		default:
			left = append(left, t)
		}
	}
	c.targets = left
	if len(left) > 0 {
		return false, nil
	}
	return true, errors.Join(c.failed...)
}

// choose returns the pods to wait for. With --for=Created, it returns no pod until all of the pods
// exist.
func (c *waitCommand) choose(pods []*v1.Pod, args []string) (out []target, err error) {
	var values []v1.Pod
	for _, p := range pods {
		values = append(values, *p)
	}
	var shown []v1.Pod
	if len(args) == 0 {
		if shown, err = c.ofSelector(values); err != nil {
			return nil, err
		}
	}
	for _, a := range args {
		pod, err := client.ChoosePod(values, c.Namespace, a)
		if missing := command.CodeOf(err) == command.ExitNotFound; missing && c.until.kind == goalDeleted {
			continue
		} else if missing && c.until.kind == goalCreated {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		shown = append(shown, *pod)
	}
	for _, p := range shown {
		t := target{NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, uid: p.UID}
		if !slices.ContainsFunc(out, func(o target) bool { return o.NamespacedName == t.NamespacedName }) {
			out = append(out, t)
		}
	}
	return out, nil
}

// ofSelector returns the pods that -l and --all select.
func (c *waitCommand) ofSelector(pods []v1.Pod) ([]v1.Pod, error) {
	pods, err := c.SelectPods(pods)
	if err != nil {
		return nil, err
	}
	ns := cmp.Or(c.Namespace, v1.NamespaceDefault)
	found := slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return !c.anywhere && p.Namespace != ns })
	if len(found) == 0 && c.until.kind != goalDeleted && c.until.kind != goalCreated {
		return nil, command.ExitWith(command.ExitNotFound, client.NoPods(c.Text, ns, c.anywhere, len(pods)))
	}
	return found, nil
}

// current returns the pod with the given name, or nil. While a pod is being replaced, the old and the new pod have the
// same name. In that case current returns the pod that is not being deleted.
func current(pods []*v1.Pod, name types.NamespacedName) (found *v1.Pod) {
	for _, p := range pods {
		if p.Namespace == name.Namespace && p.Name == name.Name && (found == nil || found.DeletionTimestamp != nil) {
			found = p
		}
	}
	return found
}
