package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/printable"
)

// copyCommand implements islet cp. Like kubectl cp it requires tar in the container. Files from a container are
// written only below the target, even if the archive contains other paths.
type copyCommand struct {
	*command.Tool
	client.PodFlag
	name string
}

// Copy sets up islet cp.
func Copy(t *command.Tool, flags *pflag.FlagSet) command.Runner {
	c := &copyCommand{Tool: t}
	c.Declare(flags)
	flags.StringVarP(&c.name, "container", "c", "", "the container (default: the first)")
	return c.run
}

// A location is the path of a file or directory. If the field pod is empty, the path is on this machine. Otherwise it
// is in a container of that pod.
type location struct{ pod, path string }

// parsePlace parses PATH or POD:PATH. A local path with a colon must begin with / or .
func parsePlace(s string) location {
	pod, path, ok := strings.Cut(s, ":")
	if !ok || strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") {
		return location{path: s}
	}
	return location{pod, path}
}

func (c *copyCommand) run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return command.Usage("cp needs two places: islet cp POD:PATH FILE, or islet cp FILE POD:PATH")
	}
	from, to := parsePlace(args[0]), parsePlace(args[1])
	inside := from
	if from.pod == "" {
		inside = to
	}
	switch {
	case (from.pod == "") == (to.pod == ""):
		return command.Usage("either %s or %s must be POD:PATH, the other one a local path", args[0], args[1])
	case inside.path == "":
		return command.Usage("%s: needs a path in the container", inside.pod)
	case from.path == "" || to.path == "":
		return command.Usage("a path is empty")
	}
	pod, err := client.FindPod(ctx, c.Tool, c.PodFlag, inside.pod)
	if err != nil {
		return err
	}
	name, err := client.ChooseContainer(c.Tool, pod, c.name)
	if err != nil {
		return err
	}
	if to.pod != "" {
		return c.upload(ctx, pod, name, from.path, to.path)
	}
	return c.download(ctx, pod, name, from.path, to.path)
}

// download reads an archive of one path of the container.
func (c *copyCommand) download(ctx context.Context, pod *v1.Pod, container, from, to string) error {
	from = path.Clean("/" + from)
	dir, base := path.Split(from)
	if base == "" {
		dir, base = "/", "."
	}
	err := receiveFiles(base, to, func(w io.Writer) error {
		return c.runTar(ctx, pod, container, []string{"tar", "cf", "-", "-C", dir, "--", base}, nil, w)
	})
	if errors.Is(err, errNoTar) {
		err = receiveFiles(base, to, func(w io.Writer) error { return c.fetchFiles(ctx, pod, container, from, w) })
	}
	return err
}

// receiveFiles extracts the archive that the function send writes. The names of the archive's entries are base or below
// base.
func receiveFiles(base, to string, send func(io.Writer) error) error {
	target := to
	if info, err := os.Stat(to); err == nil && info.IsDir() && base != "." {
		target = filepath.Join(to, base)
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := unpack(r, base, target)
		r.CloseWithError(err) // unblocks tar
		done <- err
	}()
	err := send(w)
	w.CloseWithError(err)
	if err := <-done; err != nil { // includes tar's error messages
		return err
	}
	return err
}

// upload sends an archive with one local path.
func (c *copyCommand) upload(ctx context.Context, pod *v1.Pod, container, from, to string) error {
	if _, err := os.Lstat(from); err != nil {
		return command.ExitWith(command.ExitNotFound, err)
	}
	dir, base := path.Split(path.Clean("/" + to))
	inside := strings.HasSuffix(to, "/") || base == ""
	if !inside {
		var err error
		if inside, err = c.isDirectory(ctx, pod, container, path.Clean("/"+to)); err != nil {
			return err
		}
	}
	if inside {
		dir, base = path.Clean("/"+to), filepath.Base(from)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w, from, base)
		packed <- err
		w.CloseWithError(err)
	}()
	err := c.runTar(ctx, pod, container, []string{"tar", "xmf", "-", "-C", dir}, r, io.Discard)
	r.Close() // unblocks pack
	failed := <-packed
	if errors.Is(err, errNoTar) {
		return c.sendFiles(ctx, pod, container, from, to)
	}
	if failed != nil && (err == nil || !errors.Is(failed, io.ErrClosedPipe)) {
		return failed // even if tar has succeeded
	}
	return err
}

// isDirectory reports whether a path in the container is a directory. Like kubectl cp, it runs the command "test -d" in
// the container. If the container does not have this command, it returns false. It returns an error if the agent could
// not be reached, or if ctx has ended.
func (c *copyCommand) isDirectory(ctx context.Context, pod *v1.Pod, container, name string) (bool, error) {
	err := c.runTar(ctx, pod, container, []string{"test", "-d", name}, nil, io.Discard)
	if command.IsUnreachable(err) || ctx.Err() != nil {
		return false, err
	}
	return err == nil, nil
}

// runTar runs tar in the container with these streams. If tar fails, the error contains tar's error
// output.
func (c *copyCommand) runTar(ctx context.Context, pod *v1.Pod, container string, words []string, in io.Reader, out io.Writer) error {
	var complaint limitedWriter
	t := *c.Tool
	t.Stdin, t.Out, t.Stderr = in, out, &complaint
	x := &execCommand{Tool: &t, stdin: in != nil}
	conn, err := x.connect(ctx, fmt.Sprintf("/exec/%s/%s/%s", pod.Namespace, pod.Name, container), x.buildQuery(words))
	if err != nil {
		return err
	}
	defer conn.Close()
	err = x.copyStreams(ctx, &socket{conn: conn}, nil)
	text := printable.Line(strings.TrimSpace(complaint.String()))
	exit := command.ExitError{}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.Err == nil:
		return fmt.Errorf("tar in container %s of pod %s/%s: %s", container, pod.Namespace, pod.Name, cmp.Or(text, err.Error()))
	case strings.Contains(err.Error(), "not found") || strings.Contains(err.Error(), "no such file"):
		return fmt.Errorf("%w: %w", errNoTar, err)
	}
	return err
}

// limitedWriter keeps only the first MaxMessage bytes that are written to it.
type limitedWriter struct{ strings.Builder }

func (l *limitedWriter) Write(b []byte) (int, error) {
	l.Builder.Write(b[:min(len(b), max(0, client.MaxMessage-l.Len()))])
	return len(b), nil
}
