package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/api"
)

// deleteCommand is islet delete.
type deleteCommand struct {
	*tool
	podFlag
	manifestFlag
	force, wait, ignoreNotFound bool
	grace                       int64
	timeout                     time.Duration
}

func setupDelete(t *tool, flags *pflag.FlagSet) runner {
	c := &deleteCommand{tool: t}
	c.declare(flags)
	c.declareFiles(flags)
	flags.Int64Var(&c.grace, "grace-period", -1, "seconds the pod has to end (default: what its manifest says)")
	flags.BoolVar(&c.force, "force", false, "kill at once: the same as --grace-period=0")
	flags.BoolVar(&c.wait, "wait", true, "wait until the pod is gone")
	flags.DurationVar(&c.timeout, "timeout", 0, "wait no longer than this")
	flags.BoolVar(&c.ignoreNotFound, "ignore-not-found", false, "a pod that is not there is no error")
	return c.run
}

func (c *deleteCommand) run(ctx context.Context, args []string) error {
	args = withoutKind(args)
	if len(args) == 0 && len(c.files) == 0 {
		return usage("which pod? islet delete POD, or -f FILE")
	}
	if c.force {
		c.grace = max(0, c.grace)
	}
	left := map[types.UID]bool{}
	errs := []error{c.each(c.Stdin, func(origin string, data []byte) error {
		var done []api.Deleted
		q := c.query()
		q.Set("origin", origin)
		err := c.call(ctx, http.MethodDelete, api.PathPods, q, bytes.NewReader(data), &done)
		return errors.Join(err, c.report(done, left))
	})}
	if len(args) > 0 {
		pods, err := c.list(ctx)
		if err != nil {
			return err
		}
		for _, a := range args {
			errs = append(errs, c.one(ctx, pods, a, left))
		}
	}
	if c.wait && len(left) > 0 {
		errs = append(errs, c.await(ctx, left))
	}
	return errors.Join(errs...)
}

func (c *deleteCommand) query() url.Values {
	q := url.Values{}
	if c.grace >= 0 {
		q.Set("gracePeriodSeconds", fmt.Sprint(c.grace))
	}
	return q
}

// one asks the agent to delete the pod that is meant.
func (c *deleteCommand) one(ctx context.Context, pods []v1.Pod, name string, left map[types.UID]bool) error {
	pod, err := choose(pods, c.namespace, name)
	var done api.Deleted
	if err == nil {
		err = c.call(ctx, http.MethodDelete, api.PathPods+"/"+pod.Namespace+"/"+pod.Name, c.query(), nil, &done)
	}
	if exit := (exitError{}); errors.As(err, &exit) && exit.code == ExitNotFound && c.ignoreNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return c.report([]api.Deleted{done}, left)
}

// report prints what is being deleted and adds it to left.
func (c *deleteCommand) report(done []api.Deleted, left map[types.UID]bool) error {
	var errs []error
	for _, d := range done {
		switch {
		case d.NotFound && c.ignoreNotFound:
		case d.NotFound:
			errs = append(errs, exitError{ExitNotFound, errors.New(d.Error)})
		case d.Error != "":
			errs = append(errs, errors.New(d.Error))
		default:
			fmt.Fprintf(c.out, "pod/%s deleted\n", d.Name)
			left[d.UID] = true
		}
	}
	return errors.Join(errs...)
}

// await watches until none of the pods is left.
func (c *deleteCommand) await(ctx context.Context, left map[types.UID]bool) error {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, errTimeout)
		defer cancel()
	}
	resp, err := c.request(ctx, http.MethodGet, api.PathPods, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	here := map[types.UID]bool{}
	err = values(c.tool, resp.Body, func(e api.PodEvent) (bool, error) {
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
	if errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%s still not gone after %s", plural(len(left), "pod"), c.timeout)
	}
	return err
}

var errTimeout = errors.New("timeout")
