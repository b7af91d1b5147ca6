// Package process reads of processes what their cgroup does not say: the traffic of their
// network namespace, and their open files.
package process

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// An Interface is what one of a network namespace has sent and received.
type Interface struct {
	Name              string
	Received, Sent    uint64 // bytes
	PacketsIn, Out    uint64
	ErrorsIn, ErrsOut uint64
	DropsIn, DropsOut uint64
}

// maxInterfaces bounds what a pod that may make interfaces can do to a list.
const maxInterfaces = 64

// A Reader reads below a proc file system: /proc when Root is empty.
type Reader struct{ Root string }

func (r Reader) path(pid int, rest string) string {
	root := r.Root
	if root == "" {
		root = "/proc"
	}
	who := "self"
	if pid > 0 {
		who = strconv.Itoa(pid)
	}
	return filepath.Join(root, who, rest)
}

// Network reads what the network namespace of a process has sent and received, but for
// loopback. One that has ended has none; 0 is this process.
func (r Reader) Network(pid int) []Interface {
	f, err := os.Open(r.path(pid, "net/dev"))
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []Interface
	for in := bufio.NewScanner(f); in.Scan() && len(out) < maxInterfaces; {
		if t, ok := parseInterface(in.Text()); ok && t.Name != "lo" {
			out = append(out, t)
		}
	}
	return out
}

// parseInterface reads "eth0: bytes packets errs drop fifo frame compressed multicast
// bytes packets errs drop ...".
func parseInterface(line string) (i Interface, ok bool) {
	name, rest, ok := strings.Cut(line, ":")
	f := strings.Fields(rest)
	if !ok || len(f) < 16 {
		return i, false
	}
	i.Name = strings.TrimSpace(name)
	for at, to := range map[int]*uint64{
		0: &i.Received, 1: &i.PacketsIn, 2: &i.ErrorsIn, 3: &i.DropsIn, 8: &i.Sent, 9: &i.Out, 10: &i.ErrsOut, 11: &i.DropsOut,
	} {
		if *to, _ = strconv.ParseUint(f[at], 10, 64); f[at] != "0" && *to == 0 {
			return i, false
		}
	}
	return i, true
}

// SameNetwork says whether a process is in the network namespace of this one, which is the
// host's.
func (r Reader) SameNetwork(pid int) bool {
	mine, err1 := os.Readlink(r.path(0, "ns/net"))
	its, err2 := os.Readlink(r.path(pid, "ns/net"))
	return err1 == nil && err2 == nil && mine == its
}

// Files are what processes have open.
type Files struct {
	Descriptors, Sockets uint64
	Known                bool // false: nothing could be read
}

// maxDescriptors bounds how many are looked at of one process: a pod may open very many.
const maxDescriptors = 4096

// Open counts the open files of processes. Of a process with more than maxDescriptors the
// sockets among the others are not counted.
func (r Reader) Open(pids []int) (f Files) {
	target := make([]byte, 16)
	for _, pid := range pids {
		d, err := os.Open(r.path(pid, "fd"))
		if err != nil {
			continue // it has just ended
		}
		f.Known = true
		names, err := d.Readdirnames(maxDescriptors)
		for _, name := range names {
			if n, err := unix.Readlinkat(int(d.Fd()), name, target); err == nil && bytes.HasPrefix(target[:n], []byte("socket:")) {
				f.Sockets++
			}
		}
		f.Descriptors += uint64(len(names))
		for err == nil && len(names) > 0 { // count the rest
			names, err = d.Readdirnames(maxDescriptors)
			f.Descriptors += uint64(len(names))
		}
		d.Close()
	}
	return f
}

// OpenFilesLimit is how many files a process may have open; false: it is gone.
func OpenFilesLimit(pid int) (soft uint64, ok bool) {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l); err != nil {
		return 0, false
	}
	return l.Cur, true
}
