package ctrd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// handedProcess is where an OCI runtime finds the process of a handover.
const handedProcess = "/proc/self/fd/3"

// A handover gives an OCI runtime that was started the process that it is to run
// in a container. It comes through a pipe: until it is there nothing was started
// inside, and so what the OCI runtime's own process is given by then, all of its
// children have.
type handover struct {
	cmd  *exec.Cmd
	p    *specs.Process
	r, w *os.File
}

// handProcess prepares cmd, which has not been started.
func handProcess(cmd *exec.Cmd, p *specs.Process) (*handover, error) {
	h := &handover{cmd: cmd, p: p}
	var err error
	if h.r, h.w, err = os.Pipe(); err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{h.r}
	return h, nil
}

// over lets cmd, which was just started, go on. Its OOM score is the container's
// from here on: crun leaves an exec's process with that of its parent, the agent,
// which the kernel is to spare.
func (h *handover) over(log *slog.Logger) {
	h.r.Close()
	if s := h.p.OOMScoreAdj; s != nil {
		path := fmt.Sprintf("/proc/%d/oom_score_adj", h.cmd.Process.Pid)
		err := os.WriteFile(path, []byte(strconv.Itoa(*s)), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			log.Warn("a command in a container keeps the agent's oom_score_adj", "error", err)
		}
	}
	go func() {
		json.NewEncoder(h.w).Encode(h.p) // fails if the OCI runtime has ended, which says why
		h.w.Close()
	}()
}

// close lets go of what was not handed over.
func (h *handover) close() {
	h.r.Close()
	h.w.Close()
}
