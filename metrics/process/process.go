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

// An Interface contains the traffic counters of a network interface.
type Interface struct {
	Name              string // in UTF-8; other bytes in the name are replaced with U+FFFD
	Received, Sent    uint64 // bytes
	PacketsIn, Out    uint64
	ErrorsIn, ErrsOut uint64
	DropsIn, DropsOut uint64
}

// maxInterfaces is the maximum number of interfaces that are listed for a pod, because a privileged pod can create any number of them. The
// maximum for the machine is larger, because a CNI plugin may create a veth for each pod with a name that isPodInterface does not
// recognize.
const (
	maxInterfaces     = 64
	maxHostInterfaces = 512
)

// A Reader reads a proc file system. The default of Root is /proc.
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

// maxText is the maximum number of bytes that are read from a file. This is enough for the maximum number of interfaces (maxInterfaces).
// For the machine, the maximum is maxHostText, because the machine has an interface for each pod.
const (
	maxText     = 16 << 10
	maxHostText = 256 << 10
)

// Network returns the traffic counters of the interfaces in the network namespace of a process, without loopback. If the process has ended,
// it returns no interfaces. A pid of 0 means this process, which is in the machine's namespace. In this case Network omits the veths of
// pods.
func (r Reader) Network(pid int) (out []Interface) {
	b := kernfile.Get()
	defer b.Put()
	most, bound := maxInterfaces, maxText
	if pid == 0 {
		most, bound = maxHostInterfaces, maxHostText
	}
	text, _ := b.File(bound, r.path(pid, "net/dev")) // after an error the text is shorter
	for line := range bytes.Lines(text) {
		name, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if len(out) == most || string(name) == "lo" || pid == 0 && isPodInterface(name) {
			continue
		}
		if i, ok := parseInterface(line); ok {
			out = append(out, i)
		}
	}
	return out
}

// isPodInterface reports whether an interface of the machine belongs to containers, according to its name. cAdvisor excludes the same three
// prefixes. In islet's own network, the name of a pod's veth is "isl" with 12 hexadecimal digits.
func isPodInterface(name []byte) bool {
	for _, prefix := range []string{"veth", "docker", "nerdctl"} {
		if bytes.HasPrefix(name, []byte(prefix)) {
			return true
		}
	}
	digits, ok := bytes.CutPrefix(name, []byte("isl"))
	return ok && len(digits) == 12 && len(bytes.Trim(digits, "0123456789abcdef")) == 0
}

// parseInterface parses "eth0: bytes packets errs drop fifo frame compressed multicast bytes
// packets errs drop ...".
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
		v, err := strconv.ParseUint(kernfile.StringView(f), 10, 64)
		if err != nil {
			return i, false
		}
		figures[n], n = v, n+1
	}
	return Interface{Name: strings.ToValidUTF8(string(bytes.TrimSpace(name)), string(utf8.RuneError)),
		Received: figures[0], PacketsIn: figures[1], ErrorsIn: figures[2], DropsIn: figures[3],
		Sent: figures[8], Out: figures[9], ErrsOut: figures[10], DropsOut: figures[11]}, n == len(figures)
}

// SameNetwork reports whether a process is in the network namespace of this process, which is the host's
// namespace.
func (r Reader) SameNetwork(pid int) bool {
	mine, err1 := os.Readlink(r.path(0, "ns/net"))
	its, err2 := os.Readlink(r.path(pid, "ns/net"))
	return err1 == nil && err2 == nil && mine == its
}

// Files contains the number of open files of processes.
type Files struct {
	Descriptors, Sockets uint64
	Known                bool // false if no process could be read
}

// These are the maximum numbers of processes, names and descriptors that one call of Open inspects. A pod may have very many processes that
// open very many files. Processes can share one table of files. Each process may then have a million open files at the cost of a single
// table.
const (
	maxProcesses   = 256
	maxNames       = 128 << 10
	maxDescriptors = 16384
	namesAtOnce    = 4096
)

// Open counts the open files of the first maxProcesses processes. It recognizes sockets only among the first maxDescriptors descriptors. A
// kernel before 6.2 does not report the number of open files, so Open counts names. It stops after about maxNames names, so there may be
// more files than the result.
func (r Reader) Open(pids []int) (f Files) {
	target, left, unread := make([]byte, 16), maxDescriptors, maxNames
	for _, pid := range pids[:min(len(pids), maxProcesses)] {
		d, err := os.Open(r.path(pid, "fd"))
		if err != nil {
			continue // the process has just ended
		}
		f.Known = true
		reported := r.reportedFiles(d)
		f.Descriptors += reported
		for unread > 0 && (reported == 0 || left > 0) {
			names, err := d.Readdirnames(namesAtOnce)
			if err != nil {
				break
			}
			unread -= len(names)
			if reported == 0 {
				f.Descriptors += uint64(len(names))
			}
			for _, name := range names[:min(len(names), left)] {
				if n, err := unix.Readlinkat(int(d.Fd()), name, target); err == nil && bytes.HasPrefix(target[:n], []byte("socket:")) {
					f.Sockets++
				}
			}
			left -= min(len(names), left)
		}
		d.Close()
	}
	return f
}

// reportedFiles returns the number of open files that the kernel reports as the size of a directory /proc/PID/fd, or 0.
func (r Reader) reportedFiles(d *os.File) uint64 {
	var st unix.Stat_t
	if r.Root != "" || unix.Fstat(int(d.Fd()), &st) != nil {
		return 0
	}
	return uint64(st.Size)
}

// SelfCPUTime returns the CPU time of this process.
func SelfCPUTime() (user, system time.Duration) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// OpenFilesLimit returns the maximum number of open files of a process. It returns false if the process has ended.
func OpenFilesLimit(pid int) (soft uint64, ok bool) {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l); err != nil {
		return 0, false
	}
	return l.Cur, true
}
