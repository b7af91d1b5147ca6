package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// RunDirs returns the run directories of the agents on the host that run the same program as the process with the given
// PID. The parameter host is the root directory of the host. The parameter usual is the run directory of an agent
// without --run-dir on its command line.
func RunDirs(host fs.FS, self int, usual string) (dirs []string) {
	exe := program(host, strconv.Itoa(self))
	entries, err := fs.ReadDir(host, "proc")
	if err != nil || exe == "" {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == self || program(host, e.Name()) != exe {
			continue
		}
		f, err := host.Open(fmt.Sprintf("proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		line, err := io.ReadAll(io.LimitReader(f, 64<<10)) // a process can make its own command line arbitrarily long
		if errors.Join(err, f.Close()) != nil {
			continue
		}
		if dir, ok := runDir(line, usual); ok && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// program returns the path of a process's executable. If the file at this path was replaced after the process
// started, program still returns the path.
func program(host fs.FS, pid string) string {
	exe, err := fs.ReadLink(host, "proc/"+pid+"/exe")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(exe, " (deleted)")
}

// runDir returns the run directory from the command line of an agent. If the command line runs another command of
// islet, runDir returns false.
func runDir(line []byte, usual string) (dir string, ok bool) {
	var args []string
	for part := range bytes.SplitSeq(bytes.TrimRight(line, "\x00"), []byte{0}) {
		args = append(args, string(part))
	}
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") && args[1] != "agent" && args[1] != "" {
		return "", false
	}
	dir = usual
	for i, a := range args {
		name, value, joined := strings.Cut(strings.ReplaceAll(a, "_", "-"), "=")
		switch {
		case name != "--run-dir":
		case joined:
			_, dir, _ = strings.Cut(a, "=")
		case i+1 < len(args):
			dir = args[i+1]
		default:
			dir = value
		}
	}
	return dir, filepath.IsAbs(dir)
}
