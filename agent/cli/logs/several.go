package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/printable"
)

// logsSelection contains the flags of islet logs that select several pods.
type logsSelection struct {
	client.SelectorFlag
	anywhere bool
	allPods  bool
	streams  int // maximum number of logs that are followed at the same time
}

// Limits of the logs that are followed at the same time. The agent has a limited number of connections.
const (
	defaultStreams = 16
	maxStreams     = 48
)

// selectorTail is the number of lines that -l prints of each log if --tail is not set. kubectl uses
// the same number.
const selectorTail = 10

func (s *logsSelection) declareSelection(flags *pflag.FlagSet) {
	flags.StringVarP(&s.Text, "selector", "l", "", "the pods with these labels, such as app=web; without --tail, 10 lines of each log")
	flags.BoolVar(&s.allPods, "all-pods", false, "all pods of the namespace; without --tail, 10 lines of each log")
	flags.BoolVarP(&s.anywhere, "all-namespaces", "A", false, "with -l or --all-pods: in every namespace")
	flags.IntVar(&s.streams, "max-log-requests", defaultStreams, "maximum number of logs that -f follows at the same time, at most 48")
}

// many reports whether -l or --all-pods selects the pods. Otherwise the arguments name them.
func (s *logsSelection) many() bool { return s.Text != "" || s.allPods }

// A logStream is the log of one container.
type logStream struct {
	pod       *v1.Pod
	container string
}

// SelectPods returns the pods of the arguments or the flags. If there are two arguments, the second one may be the name
// of a container in the pod of the first one. In this case SelectPods also returns this name.
func (c *logsCommand) selectPods(ctx context.Context, args []string) (pods []v1.Pod, container string, err error) {
	all, err := client.ListPods(ctx, c.Tool)
	if err != nil {
		return nil, "", err
	}
	if c.many() {
		pods, err = c.labelled(all)
		return pods, c.name, err
	}
	container = c.name
	for i, a := range args {
		pod, err := client.ChoosePod(all, c.Namespace, a)
		if i == 1 && len(args) == 2 && c.name == "" && !c.all {
			first := &pods[0]
			if err != nil || slices.Contains(client.ContainerNames(first), a) {
				return pods, a, nil
			}
		}
		if err != nil {
			return nil, "", err
		}
		pods = append(pods, *pod)
	}
	return pods, container, nil
}

// labelled returns the pods that -l and --all-pods select.
func (c *logsCommand) labelled(all []v1.Pod) ([]v1.Pod, error) {
	matching, err := c.SelectorFlag.SelectPods(all)
	if err != nil {
		return nil, err
	}
	ns := cmp.Or(c.Namespace, v1.NamespaceDefault)
	found := slices.DeleteFunc(slices.Clone(matching), func(p v1.Pod) bool { return !c.anywhere && p.Namespace != ns })
	if len(found) == 0 {
		return nil, command.ExitWith(command.ExitNotFound, client.NoPods(c.Text, ns, c.anywhere, len(matching)))
	}
	return found, nil
}

// logStreams returns the logs to print.
func (c *logsCommand) logStreams(pods []v1.Pod, container string) (out []logStream, err error) {
	var errs []error
	for i := range pods {
		pod := &pods[i]
		names := client.ContainerNames(pod)
		switch {
		case c.all:
		case container == "" && len(pods) > 1: // the prefix shows which container was chosen
			names = names[:min(1, len(names))]
			if n := pod.Annotations[keys.DefaultContainer]; n != "" {
				names = []string{n}
			}
		default:
			name, err := client.ChooseContainer(c.Tool, pod, container)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			names = []string{name}
		}
		for _, name := range names {
			out = append(out, logStream{pod, name})
		}
	}
	if len(out) == 0 {
		return nil, errors.Join(errs...)
	}
	for _, err := range errs {
		command.PrintError(c.Stderr, err)
	}
	if c.followed && len(out) > c.streams {
		return nil, command.Usage("-f would follow %d logs, but at most %d are allowed: select fewer, or use --max-log-requests",
			len(out), c.streams)
	}
	return out, nil
}

// printStreams prints several logs, one after the other. With -f it prints the lines of all logs as they arrive. An error
// in one log does not stop the output of the other logs.
func (c *logsCommand) printStreams(ctx context.Context, streams []logStream) error {
	var mu sync.Mutex
	var group sync.WaitGroup
	failed := error(nil)
	for _, s := range streams {
		print := func() {
			if err := c.printOne(ctx, s.pod, s.container, &mu); err != nil && ctx.Err() == nil {
				mu.Lock()
				defer mu.Unlock()
				if len(streams) > 1 && c.prefix {
					err = fmt.Errorf("pod %s/%s, container %s: %w", s.pod.Namespace, s.pod.Name, s.container, err)
				}
				command.PrintError(c.Stderr, err)
				failed = command.ExitWith(command.ExitFailed, nil)
			}
		}
		if c.followed {
			group.Go(print)
		} else {
			print()
		}
	}
	group.Wait()
	return errors.Join(ctx.Err(), failed)
}

// prefixOf returns the beginning of each line of a log. With several namespaces it contains the namespace.
func (c *logsCommand) prefixOf(pod *v1.Pod, container string) string {
	name := pod.Name
	if c.anywhere {
		name = pod.Namespace + "/" + name
	}
	return fmt.Sprintf("[pod/%s/%s] ", printable.Line(name), printable.Line(container))
}
