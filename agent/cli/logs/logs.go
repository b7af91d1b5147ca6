package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
)

// logsCommand implements islet logs.
type logsCommand struct {
	*command.Tool
	client.PodFlag
	logsSelection
	flags                          *pflag.FlagSet
	name                           string
	followed, timestamps, previous bool
	all, prefix                    bool
	tail                           int64
	limit                          int64
	since                          time.Duration
	sinceTime                      string
	lostMessage                    sync.Once // prints the message about a lost agent only once
}

// Print sets up islet logs.
func Print(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &logsCommand{Tool: t, flags: flags}
	c.Declare(flags)
	c.declareSelection(flags)
	flags.StringVarP(&c.name, "container", "c", "", "the container (default: the first)")
	flags.BoolVar(&c.all, "all-containers", false, "print the logs of all containers of the pod")
	flags.BoolVarP(&c.followed, "follow", "f", false, "continue until the container has ended, also across restarts of the agent")
	flags.Int64Var(&c.tail, "tail", -1, "only this number of lines from the end")
	flags.DurationVar(&c.since, "since", 0, "only lines that are not older than this, such as 5s, 2m or 3h")
	flags.StringVar(&c.sinceTime, "since-time", "", "only lines since this time, such as 2006-01-02T15:04:05Z")
	flags.BoolVar(&c.timestamps, "timestamps", false, "begin each line with its time")
	flags.BoolVarP(&c.previous, "previous", "p", false, "print the log of the container before its last restart")
	flags.Int64Var(&c.limit, "limit-bytes", 0, "stop after this number of bytes")
	flags.BoolVar(&c.prefix, "prefix", false, "begin each line with the pod and the container; the default for several pods")
	return c.run
}

func (c *logsCommand) run(ctx context.Context, args []string) error {
	if err := c.checkUsage(args); err != nil {
		return err
	}
	pods, container, err := c.selectPods(ctx, args)
	if err != nil {
		return err
	}
	if several := len(pods) > 1 || c.many(); several && !c.flags.Changed("prefix") {
		c.prefix = true
	}
	if c.many() && !c.flags.Changed("tail") {
		c.tail = selectorTail
	}
	streams, err := c.logStreams(pods, container)
	if err != nil {
		return err
	}
	if terminal.IsTerminal(c.Out) {
		safe := &logFilter{w: c.Out, strict: c.prefix}
		c.Out = safe
		defer safe.finish()
	}
	if len(streams) == 1 && !c.all && !c.many() {
		return c.printOne(ctx, streams[0].pod, streams[0].container, nil)
	}
	return c.printStreams(ctx, streams)
}

// checkUsage returns an error if the arguments and flags contradict each other.
func (c *logsCommand) checkUsage(args []string) error {
	switch {
	case len(args) == 0 && !c.many():
		return command.Usage("logs needs a pod: islet logs POD [CONTAINER], islet logs POD... or islet logs -l LABELS")
	case len(args) > 0 && c.many():
		return command.Usage("-l and --all-pods cannot be combined with names of pods")
	case c.all && c.name != "":
		return command.Usage("--all-containers cannot be combined with a container")
	case c.since != 0 && c.sinceTime != "":
		return command.Usage("--since cannot be combined with --since-time")
	case c.streams < 1 || c.streams > maxStreams:
		return command.Usage("--max-log-requests %d: must be from 1 to %d", c.streams, maxStreams)
	}
	return nil
}

// printOne prints the log of one container. If mu is set, it writes only complete lines.
func (c *logsCommand) printOne(ctx context.Context, pod *v1.Pod, container string, mu *sync.Mutex) error {
	if mu == nil && !c.prefix {
		return c.writeTo(ctx, c.Out, pod, container)
	}
	prefix := ""
	if c.prefix {
		prefix = c.prefixOf(pod, container)
	}
	l := terminal.NewLineWriter(c.Out, mu, prefix)
	return errors.Join(c.writeTo(ctx, l, pod, container), l.WriteUnfinished())
}

func (c *logsCommand) writeTo(ctx context.Context, out io.Writer, pod *v1.Pod, container string) error {
	if c.followed && !c.previous && c.limit == 0 {
		return c.followLog(ctx, out, pod, container)
	}
	return Copy(ctx, c.Tool, out, pod, container, c.buildQuery())
}

// Copy prints a log with the options of the query.
func Copy(ctx context.Context, t *command.Tool, out io.Writer, pod *v1.Pod, container string, q url.Values) error {
	resp, err := client.Request(ctx, t, http.MethodGet, fmt.Sprintf("/containerLogs/%s/%s/%s", pod.Namespace, pod.Name, container), q, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := client.CopyAnswer(t, out, resp.Body); err != nil {
		return err
	}
	if text := resp.Trailer.Get(api.TrailerError); text != "" {
		return fmt.Errorf("the log of container %s is not complete: %s", container, text)
	}
	return nil
}

func (c *logsCommand) buildQuery() url.Values {
	q := url.Values{}
	set := func(is bool, key, value string) {
		if is {
			q.Set(key, value)
		}
	}
	set(c.followed, "follow", "true")
	set(c.timestamps, "timestamps", "true")
	set(c.previous, "previous", "true")
	set(c.tail >= 0, "tailLines", fmt.Sprint(c.tail))
	set(c.limit > 0, "limitBytes", fmt.Sprint(c.limit))
	set(c.since > 0, "sinceTime", time.Now().Add(-c.since).UTC().Format(time.RFC3339Nano))
	set(c.sinceTime != "", "sinceTime", c.sinceTime)
	return q
}
