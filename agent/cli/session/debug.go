package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/logs"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// debugCommand implements islet debug. Its flags are the same as in kubectl debug.
type debugCommand struct {
	execCommand
	image, target, pull string
	quiet               bool
}

// Debug sets up islet debug.
func Debug(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &debugCommand{execCommand: execCommand{Tool: t, attach: true}}
	c.Declare(flags)
	flags.StringVar(&c.image, "image", "", "the image of the new container")
	flags.StringVarP(&c.name, "container", "c", "", "the name of the new container (default: debugger- and five letters)")
	flags.StringVar(&c.target, "target", "", "a container of the pod whose processes the new one sees")
	flags.StringVar(&c.pull, "image-pull-policy", "", "Always, IfNotPresent or Never")
	flags.BoolVarP(&c.stdin, "stdin", "i", false, "pass standard input to the process; implies --attach")
	flags.BoolVarP(&c.tty, "tty", "t", false, "use standard input as a terminal")
	flags.BoolVar(&c.quiet, "quiet", false, "print no notes")
	attach := flags.Bool("attach", false, "wait for the container and print its output (default: the value of --stdin)")
	return func(ctx context.Context, args []string) error {
		if !flags.Changed("attach") {
			*attach = c.stdin
		}
		return c.debug(ctx, args, *attach)
	}
}

// debug adds the container and, if attach is true, connects to it. If the container has already ended, debug prints its log.
func (c *debugCommand) debug(ctx context.Context, args []string, attach bool) error {
	switch {
	case len(args) == 0 || c.ArgsBeforeDash == 0:
		return command.Usage("debug needs a pod: islet debug POD --image=IMAGE [-- COMMAND]")
	case c.ArgsBeforeDash < 0 && len(args) > 1, c.ArgsBeforeDash > 1:
		return command.Usage("debug needs one pod; a command comes after --")
	case c.image == "":
		return command.Usage("debug needs --image")
	case c.stdin && !attach:
		return command.Usage("--stdin needs --attach")
	}
	pod, err := client.FindPod(ctx, c.execCommand.Tool, c.PodFlag, args[0])
	if err != nil {
		return err
	}
	term := c.inputTerminal()
	var done api.Debugged
	path := fmt.Sprintf("%s/%s/%s/debug", api.PathPods, pod.Namespace, pod.Name)
	if err := client.Call(ctx, c.execCommand.Tool, http.MethodPost, path, c.settings(args[1:]), nil, &done); err != nil {
		return err
	}
	if c.name == "" && !c.quiet {
		fmt.Fprintf(c.Stderr, "Defaulting debug container name to %s.\n", done.Container)
	}
	if !attach {
		return nil
	}
	return c.connectTo(ctx, pod, done.Container, term)
}

// connectTo waits for the container, and connects its streams until it ends. Without standard input, connectTo follows the
// container's log instead. The log has the complete output, even of a command that ends at once. connectTo also prints the log if the
// container has ended before its streams were connected. connectTo returns the exit code of the container as an error.
func (c *debugCommand) connectTo(ctx context.Context, pod *v1.Pod, name string, term *terminal.TTY) error {
	ended, err := c.waitFor(ctx, pod, name, false)
	if err != nil {
		return err
	}
	if ended == nil && (c.stdin || c.tty) {
		shown, err := c.attachTo(ctx, pod, name, term)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if ended = c.awaitEnd(ctx, pod, name); ended == nil {
			return err
		}
		if shown {
			return endError(ended)
		}
	}
	if err := logs.Copy(ctx, c.execCommand.Tool, c.Out, pod, name, url.Values{"follow": {"true"}}); err != nil {
		return err
	}
	if ended == nil {
		ended = c.awaitEnd(ctx, pod, name)
	}
	return endError(ended)
}

// attachTo connects the streams of the container until it ends or the connection is lost. It reports whether the container has sent
// any output.
func (c *debugCommand) attachTo(ctx context.Context, pod *v1.Pod, name string, term *terminal.TTY) (shown bool, err error) {
	conn, err := c.connect(ctx, fmt.Sprintf("/attach/%s/%s/%s", pod.Namespace, pod.Name, name), c.buildQuery(nil))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if c.tty && !c.quiet {
		fmt.Fprintln(c.Stderr, "If you see no prompt, press enter.")
	}
	t, x := *c.Tool, c.execCommand
	out, complaints := &noticingWriter{Writer: t.Out}, &noticingWriter{Writer: t.Stderr}
	t.Out, t.Stderr = out, complaints
	x.Tool = &t
	err = x.copyStreams(ctx, &socket{conn: conn}, term)
	return out.written || complaints.written, err
}

// A noticingWriter records whether anything was written.
type noticingWriter struct {
	io.Writer
	written bool
}

func (w *noticingWriter) Write(b []byte) (int, error) {
	w.written = w.written || len(b) > 0
	return w.Writer.Write(b)
}

// endReported is the maximum time until the status of the pod shows the end of a container.
const endReported = 10 * time.Second

// awaitEnd returns the state of an ended container. It returns nil if the pod does not show the end within endReported.
func (c *debugCommand) awaitEnd(ctx context.Context, pod *v1.Pod, name string) *v1.ContainerStateTerminated {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.ResponseTimeout, endReported))
	defer cancel()
	ended, _ := c.waitFor(ctx, pod, name, true)
	return ended
}

// startError is the reason in the status of a container that could not start, for example because its program does not exist. Such a
// container has written nothing, and the message of its state contains the cause.
const startError = "StartError"

// endError returns the exit code of an ended container as an error. It returns nil if the code is 0 or not known.
func endError(ended *v1.ContainerStateTerminated) error {
	switch {
	case ended == nil || ended.ExitCode == 0:
		return nil
	case ended.Reason == startError:
		return command.ExitWith(int(ended.ExitCode), errors.New(printable.Line(ended.Message)))
	}
	return command.ExitWith(int(ended.ExitCode), nil)
}

// settings returns the query of the request.
func (c *debugCommand) settings(command []string) url.Values {
	q := url.Values{"image": {c.image}, "command": command}
	for name, value := range map[string]string{"container": c.name, "target": c.target, "pullPolicy": c.pull} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if c.stdin {
		q.Set("stdin", "")
	}
	if c.tty {
		q.Set("tty", "")
	}
	return q
}

// waitFor waits until an ephemeral container runs or has ended. If end is true, it waits only for the end. If the container has
// ended, waitFor returns the terminated state. While the container waits, for example for its image, waitFor prints the reason. If
// the container cannot start, waitFor returns an error.
func (c *debugCommand) waitFor(ctx context.Context, pod *v1.Pod, name string, end bool) (ended *v1.ContainerStateTerminated, err error) {
	said := ""
	err = client.Stream(ctx, c.Tool, http.MethodGet, api.PathPods, nil, nil, func(e api.PodEvent) (bool, error) {
		if e.Pod == nil || e.Pod.UID != pod.UID {
			return false, nil
		}
		if e.Type == "DELETED" || e.Pod.DeletionTimestamp != nil {
			return true, fmt.Errorf("pod %s/%s is being deleted", pod.Namespace, pod.Name)
		}
		for _, st := range e.Pod.Status.EphemeralContainerStatuses {
			switch w := st.State.Waiting; {
			case st.Name != name:
			case st.State.Running != nil:
				return !end, nil
			case st.State.Terminated != nil:
				ended = st.State.Terminated
				return true, nil
			case w != nil && (w.Reason == "ErrImageNeverPull" || w.Reason == "InvalidImageName"):
				return true, errors.New(printable.Line(w.Reason + ": " + w.Message))
			case w != nil && w.Message != "" && w.Message != said && !c.quiet:
				said = w.Message
				fmt.Fprintf(c.Stderr, "%s\n", printable.Line(w.Reason+": "+w.Message))
			}
		}
		return false, nil
	})
	return ended, err
}
