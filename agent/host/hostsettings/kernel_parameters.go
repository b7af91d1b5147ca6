package hostsettings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/islet-edge/islet/internal/config"
)

// initialPIDNamespace is the link to the PID namespace in /proc/self/ns of a process outside of containers.
// https://github.com/torvalds/linux/blob/master/include/uapi/linux/nsfs.h
const initialPIDNamespace = "pid:[4026531836]"

// setKernelParameters sets the kernel parameters that a kubelet sets at its start. A parameter that cannot be set, for
// example because /proc/sys is read-only, is only logged. Parameters that the kernel does not have are ignored.
func (s Settings) setKernelParameters() {
	if !s.ownsKernel() {
		return
	}
	wanted := config.KernelSettings()
	for _, path := range slices.Sorted(maps.Keys(wanted)) {
		name := strings.ReplaceAll(path, "/", ".")
		before, err := setParameter(filepath.Join(s.proc(), "sys", path), wanted[path])
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			s.Log.Warn("a kernel parameter could not be set as a kubelet sets it", "parameter", name, "value", wanted[path], "error", err)
		case before != wanted[path]:
			s.Log.Info("a kernel parameter was set as a kubelet sets it", "parameter", name, "value", wanted[path], "before", before)
		}
	}
}

// ownsKernel reports whether the agent may set kernel parameters. They belong to the whole machine. So an agent in a
// container leaves them to its host, and an agent with its own run directory to the machine's agent.
func (s Settings) ownsKernel() bool {
	if s.Config.Kubelet.ProtectKernelDefaults || !s.Config.Dirs.HasDefaultRun() {
		return false
	}
	namespace, err := os.Readlink(filepath.Join(s.proc(), "self/ns/pid"))
	return namespace == initialPIDNamespace || errors.Is(err, fs.ErrNotExist) // a kernel without PID namespaces
}

func (s Settings) proc() string { return cmp.Or(s.Proc, "/proc") }

// setParameter writes a value to the file of a kernel parameter unless it is the present value. It returns the value
// before.
func setParameter(path string, value int) (before int, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if before, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	if before == value {
		return before, nil
	}
	return before, os.WriteFile(path, []byte(strconv.Itoa(value)), 0o644)
}
