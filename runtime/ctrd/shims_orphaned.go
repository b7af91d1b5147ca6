package ctrd

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// socketTable lists the unix sockets of this network namespace. The list also contains sockets
// whose file was removed. No client can connect to such a socket any more.
const socketTable = "/proc/net/unix"

// listeningFlag is the flag in socketTable of a socket that accepts connections (__SO_ACCEPTCON).
const listeningFlag = 1 << 16

// endShimsWithoutSocket kills the shims whose socket files were removed while they ran, because no
// client can connect to them any more. Their containers are then ended like the containers of a shim that
// has died.
//
// The socket table alone cannot be trusted. The kernel prints the names of sockets unescaped,
// including line breaks. So a pod on the host's network can forge lines that name the socket of any
// process of the host.
func (r *Runtime) endShimsWithoutSocket() {
	f, err := os.Open(socketTable)
	if err != nil {
		r.log.Warn("shims that have lost their socket could not be searched for", "error", err)
		return
	}
	defer f.Close()
	lost := map[string]string{} // shim name by socket inode
	for inode, name := range parseListeners(f, r.dirs.sockets) {
		if r.shims.connectedClient(name) == nil {
			lost[inode] = name
		}
	}
	if len(lost) == 0 {
		return
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return
	}
	for _, proc := range procs {
		name := shimName(proc)
		pid, err := strconv.Atoi(filepath.Base(proc))
		if name == "" || err != nil || pid == os.Getpid() || !listensAt(proc, lost, name) || !r.seesOwnState(proc) {
			continue
		}
		r.log.Error("a shim has lost its socket and is killed: its pods are started again", "shim", name, "pid", pid)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			r.log.Warn("a shim without a socket could not be killed", "shim", name, "error", err)
		}
	}
}

// shimName returns the shim name in the command line of a process in this PID namespace (see
// shim.Start). It returns "" if the process is not a shim. Processes of pods are in other PID
// namespaces, unless a pod shares the host's.
func shimName(proc string) string {
	self, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	if other, err := os.Readlink(filepath.Join(proc, "ns/pid")); err != nil || other != self {
		return ""
	}
	f, err := os.Open(filepath.Join(proc, "cmdline"))
	if err != nil {
		return ""
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, 64<<10)) // a process can make its command line arbitrarily long
	args := strings.Split(string(line), "\x00")
	if err != nil || len(args) < 3 || args[1] != "serve" {
		return ""
	}
	return args[2]
}

// listensAt reports whether a process has this shim's lost socket open. It checks all descriptors,
// because the number of the socket depends on the files that Go's runtime opens first.
func listensAt(proc string, lost map[string]string, name string) bool {
	fds, err := filepath.Glob(filepath.Join(proc, "fd", "*"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(fds, func(fd string) bool {
		link, err := os.Readlink(fd)
		return err == nil && lost[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] == name
	})
}

// seesOwnState reports whether a process sees this node's state directory at the same path. If
// several nodes run in containers on the host's network, a shim of another node may have a socket
// of the same name.
func (r *Runtime) seesOwnState(proc string) bool {
	self, err := os.Stat(r.dirs.containers)
	if err != nil {
		return false
	}
	other, err := os.Stat(filepath.Join(proc, "root") + r.dirs.containers)
	return err == nil && os.SameFile(self, other)
}

// parseListeners returns the names of the listening sockets in a directory. The keys are the inode numbers of the sockets. It skips other
// sockets, which may be very many. The columns of the table are
//
//	address: count protocol flags type state inode path
func parseListeners(table io.Reader, in string) map[string]string {
	out := map[string]string{}
	for lines := bufio.NewScanner(table); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 8 {
			continue
		}
		flags, err := strconv.ParseUint(f[3], 16, 64)
		if err != nil || flags&listeningFlag == 0 {
			continue
		}
		if dir, name := filepath.Split(strings.Join(f[7:], " ")); filepath.Clean(dir) == in {
			out[f[6]] = name
		}
	}
	return out
}
