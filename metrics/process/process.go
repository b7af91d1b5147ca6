package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// An Interface is what one of a network namespace has sent and received.
type Interface struct {
	Name              string // UTF-8; U+FFFD is what was not: who may make one names it with any bytes
	Received, Sent    uint64 // bytes
	PacketsIn, Out    uint64
	ErrorsIn, ErrsOut uint64
	DropsIn, DropsOut uint64
}

// maxInterfaces bounds what a pod that may make interfaces can do to a list. The machine has more
// where another network than islet's names those that lead to pods.
const (
	maxInterfaces     = 64
	maxHostInterfaces = 512
)

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

// maxText bounds what is read of a file: more than lists of maxInterfaces have. Of the machine,
// which has an interface for each pod, there is more.
const (
	maxText     = 16 << 10
	maxHostText = 256 << 10
)

// Network reads what the network namespace of a process has sent and received, but for
// loopback. One that has ended has none; 0 is this process, and so the machine: the host's ends
// of what pods have are left out.
func (r Reader) Network(pid int) (out []Interface) {
	b := kernfile.Get()
	defer b.Put()
	most, bound := maxInterfaces, maxText
	if pid == 0 {
		most, bound = maxHostInterfaces, maxHostText
	}
	text, _ := b.File(bound, r.path(pid, "net/dev")) // an error: it has as many as there are
	for line := range bytes.Lines(text) {
		name, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if len(out) == most || string(name) == "lo" || pid == 0 && toPods(name) {
			continue
		}
		if i, ok := parseInterface(line); ok {
			out = append(out, i)
		}
	}
	return out
}

// toPods reports whether an interface of the machine is an end of what containers have, by its
// name. The first three are those that cAdvisor leaves out; isl and 12 digits names the veth of a pod.
func toPods(name []byte) bool {
	for _, prefix := range []string{"veth", "docker", "nerdctl"} {
		if bytes.HasPrefix(name, []byte(prefix)) {
			return true
		}
	}
	digits, ok := bytes.CutPrefix(name, []byte("isl"))
	return ok && len(digits) == 12 && len(bytes.Trim(digits, "0123456789abcdef")) == 0
}

// parseInterface reads "eth0: bytes packets errs drop fifo frame compressed multicast
// bytes packets errs drop ...".
func parseInterface(line []byte) (i Interface, ok bool) {
	name, rest, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return i, false
	}
	var figures [16]uint64
	n := 0
	for f := range bytes.FieldsSeq(rest) {
		if n == len(figures) {
			break
		}
		v, err := strconv.ParseUint(kernfile.View(f), 10, 64)
		if err != nil {
			return i, false
		}
		figures[n], n = v, n+1
	}
	return Interface{Name: strings.ToValidUTF8(string(bytes.TrimSpace(name)), string(utf8.RuneError)),
		Received: figures[0], PacketsIn: figures[1], ErrorsIn: figures[2], DropsIn: figures[3],
		Sent: figures[8], Out: figures[9], ErrsOut: figures[10], DropsOut: figures[11]}, n == len(figures)
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

// Used is the CPU time of this process.
func Used() (user, system time.Duration) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// OpenFilesLimit is how many files a process may have open; false: it is gone.
func OpenFilesLimit(pid int) (soft uint64, ok bool) {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l); err != nil {
		return 0, false
	}
	return l.Cur, true
}
