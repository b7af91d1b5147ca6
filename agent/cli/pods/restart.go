package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// restartCommand implements islet restart.
type restartCommand struct {
	*command.Tool
	client.PodFlag
	grace   int64
	wait    bool
	timeout time.Duration
}

// Restart sets up islet restart.
func Restart(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &restartCommand{Tool: t}
	c.Declare(flags)
	flags.Int64Var(&c.grace, "grace-period", -1, "seconds that the processes have to end (default: the grace period of the pod)")
	flags.BoolVar(&c.wait, "wait", true, "wait until the pod is ready again")
	flags.DurationVar(&c.timeout, "timeout", 5*time.Minute, "maximum time to wait")
	return c.run
}

func (c *restartCommand) run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return command.Usage("restart needs a pod: islet restart POD")
	}
	pods, err := client.ListPods(ctx, c.Tool)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range args {
		pod, err := client.ChoosePod(pods, c.Namespace, a)
		if err == nil {
			err = c.restartPod(ctx, pod)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *restartCommand) restartPod(ctx context.Context, pod *v1.Pod) error {
	q := url.Values{}
	if c.grace >= 0 {
		q.Set("gracePeriodSeconds", fmt.Sprint(c.grace))
	}
	var names []string
	path := fmt.Sprintf("%s/%s/%s/restart", api.PathPods, pod.Namespace, pod.Name)
	err := client.Stream(ctx, c.Tool, http.MethodPost, path, q, nil, func(p api.Progress) (bool, error) {
		names = p.Images
		if p.Error != "" {
			return true, errors.New(printable.Line(p.Error))
		}
		return p.Done, nil
	})
	if err != nil {
		return err
	}
	if c.wait {
		if err := c.waitForRestart(ctx, pod, names); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.Out, "pod/%s restarted\n", printable.Line(pod.Name))
	return nil
}

// waitForRestart waits until each container has been replaced by a new one, and the pod is ready.
func (c *restartCommand) waitForRestart(ctx context.Context, pod *v1.Pod, names []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, podstate.ErrTimeout)
	defer cancel()
	before := map[string]string{}
	for _, st := range pod.Status.ContainerStatuses {
		before[st.Name] = st.ContainerID
	}
	last := ""
	err := client.Stream(ctx, c.Tool, http.MethodGet, api.PathPods, nil, nil, func(e api.PodEvent) (bool, error) {
		switch {
		case e.Pod == nil || e.Pod.UID != types.UID(pod.UID):
			return false, nil
		case e.Type == "DELETED":
			return true, command.ExitWith(command.ExitNotFound, fmt.Errorf("pod %s/%s is gone", pod.Namespace, pod.Name))
		}
		last = podstate.Summarize(e.Pod, c.Now()).Status
		for _, st := range e.Pod.Status.ContainerStatuses {
			if slices.Contains(names, st.Name) && (st.State.Running == nil || st.ContainerID == before[st.Name]) {
				return false, nil
			}
		}
		return podspec.IsReady(&e.Pod.Status), nil
	})
	if errors.Is(context.Cause(ctx), podstate.ErrTimeout) {
		return fmt.Errorf("pod %s/%s is not ready %s after its containers ended: it is %s; see islet describe %s",
			pod.Namespace, pod.Name, c.timeout, cmp.Or(last, "unknown"), pod.Name)
	}
	return err
}
