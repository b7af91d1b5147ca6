package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/islet-edge/islet/runtime/console"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

// handoverPath is the path from which the OCI runtime reads the process specification.
const handoverPath = "/proc/self/fd/3"

// A specPipe sends the process specification through a pipe to an OCI runtime that is already
// running. The OCI runtime starts nothing inside the container before it has read the
// specification. So attributes of the OCI runtime's process can be set before it has children, and
// all of its children inherit them.
type specPipe struct {
	cmd            *exec.Cmd
	p              *specs.Process
	reader, writer *os.File
}

// newHandover prepares cmd, which must not have been started.
func newHandover(cmd *exec.Cmd, p *specs.Process) (*specPipe, error) {
	h := &specPipe{cmd: cmd, p: p}
	var err error
	if h.reader, h.writer, err = os.Pipe(); err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{h.reader}
	return h, nil
}

// sendSpec sends the specification to cmd, which has just started. Before that, it sets the
// container's OOM score on the process of cmd. Otherwise a command that crun executes would inherit
// the agent's score, which protects the agent from the OOM killer.
func (h *specPipe) sendSpec(log *slog.Logger) {
	h.reader.Close()
	if s := h.p.OOMScoreAdj; s != nil {
		path := fmt.Sprintf("/proc/%d/oom_score_adj", h.cmd.Process.Pid)
		err := os.WriteFile(path, []byte(strconv.Itoa(*s)), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			log.Warn("the oom_score_adj of a command in a container could not be set: the command keeps the agent's value", "error", err)
		}
	}
	go func() {
		json.NewEncoder(h.writer).Encode(h.p) // fails if the OCI runtime has ended; its exit status is then the error
		h.writer.Close()
	}()
}

// close closes the pipe.
func (h *specPipe) close() {
	h.reader.Close()
	h.writer.Close()
}

// execCommand returns the command line that executes a process in a container. The command exits as soon as that process
// has ended, with the same exit code. crun behaves like this. runc copies the output of the process, and waits until all
// of its child processes have closed the output. Therefore runc runs detached, and "islet-shim exec" waits for the
// process. With a terminal, the OCI runtime sends the terminal of the process through the returned socket; otherwise the
// socket is nil.
func (r *Runtime) execCommand(ctx context.Context, oci wire.OCI, dir, id string, tty bool) (*exec.Cmd, *console.Socket, error) {
	args := []string{
		"--log", filepath.Join(dir, "log"), "--log-format", "json",
		"exec", "--process", handoverPath, "--pid-file", filepath.Join(dir, "pid"),
	}
	var socket *console.Socket
	if tty {
		var err error
		if socket, err = console.Listen(dir); err != nil {
			return nil, nil, err
		}
		args = append(args, "--console-socket", socket.Path())
	}
	exitsWithProcess := filepath.Base(oci.Path) == "crun"
	if !exitsWithProcess {
		args = append(args, "--detach")
	}
	cmd := ociCommand(context.WithoutCancel(ctx), oci, append(args, id)...)
	if !exitsWithProcess {
		cmd.Path, cmd.Args = r.c.ShimPath, append([]string{r.c.ShimPath, "exec", filepath.Join(dir, "pid")}, cmd.Args...)
	}
	return cmd, socket, nil
}
