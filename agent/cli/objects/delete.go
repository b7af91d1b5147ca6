package objects

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/printable"
)

// deleteCommand implements islet delete.
type deleteCommand struct {
	*command.Tool
	client.PodFlag
	manifestFlag
	client.SelectorFlag
	all, anywhere               bool
	force, wait, ignoreNotFound bool
	data                        bool
	grace                       int64
	timeout                     time.Duration
}

// Delete sets up islet delete.
func Delete(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &deleteCommand{Tool: t}
	c.Declare(flags)
	c.declareFiles(flags)
	c.DeclareSelector(flags)
	flags.BoolVar(&c.all, "all", false, "delete all applied pods of the namespace")
	flags.BoolVarP(&c.anywhere, "all-namespaces", "A", false, "with --all or -l: in every namespace")
	flags.Int64Var(&c.grace, "grace-period", -1, "seconds that the pod has to end (default: the grace period of its manifest)")
	flags.BoolVar(&c.force, "force", false, "give the pod the shortest time to end (hooks 1 s, containers 2 s), like --grace-period=0")
	flags.BoolVar(&c.wait, "wait", true, "wait until the pod is removed")
	flags.DurationVar(&c.timeout, "timeout", 0, "maximum time to wait")
	flags.BoolVar(&c.data, "delete-data", false, "with pvc NAME: also delete the claim's data permanently")
	flags.BoolVar(&c.ignoreNotFound, "ignore-not-found", false, "report no error if a pod does not exist")
	return c.run
}

// checkPodArgs returns an error if the arguments select no pod, or if --all or -l is combined with names of pods.
// The parameter many is true if --all or -l is set.
func (c *deleteCommand) checkPodArgs(args []string, many bool) error {
	switch {
	case len(args) == 0 && len(c.files) == 0 && !many:
		return command.Usage("delete needs a pod: islet delete POD, -f FILE, -l LABELS or --all")
	case many && len(args)+len(c.files) > 0:
		return command.Usage("--all and -l cannot be combined with names of pods")
	}
	return nil
}

func (c *deleteCommand) run(ctx context.Context, args []string) error {
	if names, ok := ParseNames(args, c.Namespace); ok {
		if len(names) == 0 || len(c.files) > 0 || c.all || c.Text != "" {
			return command.Usage("delete needs a name: islet delete %s NAME", args[0])
		}
		return c.deleteObjects(ctx, names)
	}
	if c.data {
		return command.Usage("--delete-data is only valid for islet delete pvc NAME")
	}
	many := c.all || c.Text != ""
	if err := c.checkPodArgs(args, many); err != nil {
		return err
	}
	if c.force {
		c.grace = max(0, c.grace)
	}
	left := map[types.UID]bool{}
	errs := []error{c.readFiles(c.Stdin, func(origin string, data []byte) error {
		var done []api.Deleted
		q := c.buildQuery()
		q.Set("origin", origin)
		err := client.Call(ctx, c.Tool, http.MethodDelete, api.PathPods, q, bytes.NewReader(data), &done)
		return errors.Join(err, c.reportDeleted(done, left))
	})}
	if len(args) > 0 || many {
		pods, err := client.ListPods(ctx, c.Tool)
		if err != nil {
			return err
		}
		if many {
			if args, err = c.selectApplied(pods); err != nil {
				return err
			}
		}
		for _, a := range args {
			errs = append(errs, c.deletePod(ctx, pods, a, left))
		}
	}
	if c.wait && len(left) > 0 {
		errs = append(errs, c.waitForRemoval(ctx, left))
	}
	return errors.Join(errs...)
}

// selectApplied returns the names of the pods that --all and -l select. It skips pods of other namespaces. It also
// skips pods that were not applied with islet apply, because this command cannot delete them.
func (c *deleteCommand) selectApplied(pods []v1.Pod) (names []string, err error) {
	if pods, err = c.SelectPods(pods); err != nil {
		return nil, err
	}
	for _, p := range pods {
		if (c.anywhere || p.Namespace == cmp.Or(c.Namespace, v1.NamespaceDefault)) &&
			p.Annotations[keys.ConfigSource] == keys.SourceLocal && p.DeletionTimestamp == nil {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(c.Stderr, "No pods to delete.")
	}
	if c.anywhere {
		c.Namespace = ""
	}
	return names, nil
}

func (c *deleteCommand) buildQuery() url.Values {
	q := url.Values{}
	if c.grace >= 0 {
		q.Set("gracePeriodSeconds", fmt.Sprint(c.grace))
	}
	return q
}

// deletePod requests the deletion of a pod.
func (c *deleteCommand) deletePod(ctx context.Context, pods []v1.Pod, name string, left map[types.UID]bool) error {
	pod, err := client.ChoosePod(pods, c.Namespace, name)
	var done api.Deleted
	if err == nil {
		err = client.Call(ctx, c.Tool, http.MethodDelete, api.PathPods+"/"+pod.Namespace+"/"+pod.Name, c.buildQuery(), nil, &done)
	}
	if command.CodeOf(err) == command.ExitNotFound && c.ignoreNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return c.reportDeleted([]api.Deleted{done}, left)
}

// reportDeleted prints the objects that are being deleted, and adds the UIDs of pods to the given map.
func (c *deleteCommand) reportDeleted(done []api.Deleted, left map[types.UID]bool) error {
	var errs []error
	for _, d := range done {
		switch {
		case d.NotFound && c.ignoreNotFound:
		case d.NotFound:
			errs = append(errs, command.ExitWith(command.ExitNotFound, errors.New(d.Error)))
		case d.Error != "":
			errs = append(errs, errors.New(d.Error))
		default:
			fmt.Fprintf(c.Out, "%s/%s deleted\n", printable.Line(shortKind(d.Kind)), printable.Line(d.Name))
			if d.Note != "" {
				fmt.Fprintln(c.Stderr, printable.Line(d.Note))
			}
			if d.UID != "" {
				left[d.UID] = true
			}
		}
	}
	return errors.Join(errs...)
}

// waitForRemoval waits until every pod in the given map is removed.
func (c *deleteCommand) waitForRemoval(ctx context.Context, left map[types.UID]bool) error {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, podstate.ErrTimeout)
		defer cancel()
	}
	here := map[types.UID]bool{}
	err := client.Stream(ctx, c.Tool, http.MethodGet, api.PathPods, nil, nil, func(e api.PodEvent) (bool, error) {
		switch e.Type {
		case "ADDED":
			here[e.Pod.UID] = true
		case "DELETED":
			delete(left, e.Pod.UID)
		case "SYNCED":
			for uid := range left {
				if !here[uid] {
					delete(left, uid)
				}
			}
		}
		return len(left) == 0, nil
	})
	if errors.Is(context.Cause(ctx), podstate.ErrTimeout) {
		return fmt.Errorf("%s still not gone after %s", api.Pluralize(len(left), "pod"), c.timeout)
	}
	return err
}
