package hostsettings

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/islet-edge/islet/internal/config"
)

// initialPIDNamespace is the link to the PID namespace in /proc/self/ns of a process outside of containers.
// https://github.com/torvalds/linux/blob/master/include/uapi/linux/nsfs.h
const initialPIDNamespace = "pid:[4026531836]"

// setKernelParameters sets the kernel parameters that a kubelet sets at its start. They belong to the whole machine. So an
// agent in a container leaves them to its host, and an agent with its own run directory to the machine's agent. Parameters
// that cannot be set, for example because /proc/sys is read-only, are only logged. Parameters that the kernel does not have
// are ignored.
func (s Settings) setKernelParameters() {
	proc := cmp.Or(s.Proc, "/proc")
	namespace, _ := os.Readlink(filepath.Join(proc, "self/ns/pid")) // does not exist without PID namespaces
	if s.Config.Kubelet.ProtectKernelDefaults || !s.Config.Dirs.HasDefaultRun() || namespace != "" && namespace != initialPIDNamespace {
		return
	}
	var changes []string
	var failed error
	for path, value := range config.KernelSettings() {
		before, err := setParameter(filepath.Join(proc, "sys", path), strconv.Itoa(value))
		if before != "" {
			changes = append(changes, path+" was "+before)
		}
		failed = errors.Join(failed, err)
	}
	if changes != nil {
		s.Log.Info("kernel parameters were changed to the values of a kubelet", "parameters", changes)
	}
	if failed != nil {
		s.Log.Warn("kernel parameters could not be set to the values of a kubelet", "error", failed)
	}
}

// setParameter writes a value to the file of a kernel parameter unless it is the present value. It returns the former value if it has
// changed it. It ignores a file that does not exist.
func setParameter(path, value string) (changed string, err error) {
	text, err := os.ReadFile(path)
	before := strings.TrimSpace(string(text))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil || before == value:
		return "", err
	}
	return before, os.WriteFile(path, []byte(value), 0o644)
}
