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

// setKernelParameters sets the kernel parameters that a kubelet sets at its start. They affect the whole machine. An agent in a
// container with its own PID namespace does not change the parameters, because its host sets them. An agent with its own run
// directory does not change them either, because the agent with the default run directory sets them. A parameter that cannot be
// set, for example because /proc/sys is read-only, is only logged. A parameter that the kernel does not have is ignored.
func (s Settings) setKernelParameters() {
	proc := cmp.Or(s.Proc, "/proc")
	namespace, _ := os.Readlink(filepath.Join(proc, "self/ns/pid")) // does not exist without PID namespaces
	if s.Config.Kubelet.ProtectKernelDefaults || !s.Config.Dirs.HasDefaultRun() || namespace != "" && namespace != initialPIDNamespace {
		return
	}
	var changes []string
	var failed error
	for path, value := range config.KernelSettings() {
		file, want := filepath.Join(proc, "sys", path), strconv.Itoa(value)
		text, err := os.ReadFile(file)
		before := strings.TrimSpace(string(text))
		if errors.Is(err, fs.ErrNotExist) || err == nil && before == want {
			continue
		}
		if err == nil {
			err = os.WriteFile(file, []byte(want), 0o644)
		}
		if err == nil {
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
