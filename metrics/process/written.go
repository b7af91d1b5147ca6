package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// WrittenBytes returns the number of bytes that a process has written to block devices. The number includes the bytes of child processes
// for which the process has waited. It also includes data that was deleted before it reached the device, because the kernel counts such
// data only for the process that has deleted it. A pid of 0 means this process. The result is 0 if the process has ended or its figures are
// not readable. See https://docs.kernel.org/filesystems/proc.html (3.3, /proc/PID/io).
func (r Reader) WrittenBytes(pid int) uint64 { return writtenBytes(r.path(pid, "io")) }

// SelfWritten is like WrittenBytes for this process, but does not include child processes. A child process may write far more than this
// process, for example when it creates a file system on another disk.
func SelfWritten() uint64 {
	const block, tries = 512, 10
	var before, after unix.Rusage
	all := uint64(0)
	// A child process may end between the calls. The kernel then adds its bytes to both figures at the same time,
	// so the calls are repeated until the figure of the child processes is unchanged.
	for range tries {
		if unix.Getrusage(unix.RUSAGE_CHILDREN, &before) != nil {
			return 0
		}
		all = Reader{}.WrittenBytes(0)
		if unix.Getrusage(unix.RUSAGE_CHILDREN, &after) == nil && after.Oublock == before.Oublock {
			break
		}
	}
	return all - min(all, uint64(before.Oublock)*block)
}

// OwnWritten is like WrittenBytes, but counts only the present threads of the process. It omits ended threads and child processes.
func (r Reader) OwnWritten(pid int) (sum uint64) {
	tasks, err := os.ReadDir(r.path(pid, "task"))
	if err != nil {
		return 0
	}
	for _, t := range tasks {
		sum += writtenBytes(r.path(pid, filepath.Join("task", t.Name(), "io")))
	}
	return sum
}

func writtenBytes(path string) (wrote uint64) {
	b := kernfile.Get()
	defer b.Put()
	text, _ := b.File(maxText, path) // after an error the text is empty
	for line := range bytes.Lines(text) {
		if v, ok := bytes.CutPrefix(line, []byte("write_bytes: ")); ok {
			wrote, _ = strconv.ParseUint(kernfile.StringView(bytes.TrimSpace(v)), 10, 64)
		}
	}
	return wrote
}

// RunningFrom returns the PIDs of the processes whose executable file is in a directory.
func (r Reader) RunningFrom(dir string) (pids []int) {
	root := r.Root
	if root == "" {
		root = "/proc"
	}
	d, err := os.Open(root)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if exe, err := os.Readlink(r.path(pid, "exe")); err == nil && strings.HasPrefix(exe, dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}
