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

// Written returns the number of bytes that a process has passed to the kernel to be written to block devices. It
// includes the children that the process has waited for. pid 0 means this process. It also includes data that was
// deleted before it reached the device. The kernel subtracts such data from the figures of the process that deleted
// it, which may be another process. The result is 0 if the process has ended or if its figures are hidden. See
// https://docs.kernel.org/filesystems/proc.html (3.3, /proc/PID/io).
func (r Reader) Written(pid int) uint64 { return written(r.path(pid, "io")) }

// SelfWritten is like Written for this process, but without its children. A child may write more than this process,
// for example when it creates a file system on another disk.
func SelfWritten() uint64 {
	const block, tries = 512, 10
	var before, after unix.Rusage
	all := uint64(0)
	// A child may end between the two calls. The kernel adds both figures of a child at the same time, so the calls
	// are repeated until the children's figure is unchanged.
	for range tries {
		if unix.Getrusage(unix.RUSAGE_CHILDREN, &before) != nil {
			return 0
		}
		all = Reader{}.Written(0)
		if unix.Getrusage(unix.RUSAGE_CHILDREN, &after) == nil && after.Oublock == before.Oublock {
			break
		}
	}
	return all - min(all, uint64(before.Oublock)*block)
}

// OwnWritten is like Written for the present threads of a process, without its children.
func (r Reader) OwnWritten(pid int) (sum uint64) {
	tasks, err := os.ReadDir(r.path(pid, "task"))
	if err != nil {
		return 0
	}
	for _, t := range tasks {
		sum += written(r.path(pid, filepath.Join("task", t.Name(), "io")))
	}
	return sum
}

func written(path string) (wrote uint64) {
	b := kernfile.Get()
	defer b.Put()
	text, _ := b.File(maxText, path) // after an error the text is empty
	for line := range bytes.Lines(text) {
		if v, ok := bytes.CutPrefix(line, []byte("write_bytes: ")); ok {
			wrote, _ = strconv.ParseUint(kernfile.View(bytes.TrimSpace(v)), 10, 64)
		}
	}
	return wrote
}

// Running returns the processes whose program is in a directory.
func (r Reader) Running(dir string) (pids []int) {
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
