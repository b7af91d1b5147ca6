package bootid

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
)

// These are paths below the root directory.
const (
	bootFile      = "proc/sys/kernel/random/boot_id"
	namespaceFile = "proc/self/ns/pid"
	initStatFile  = "proc/1/stat"
)

// initialPIDNamespace is the link target of the kernel's initial PID namespace (PROC_PID_INIT_INO
// in proc_ns.h).
const initialPIDNamespace = "pid:[4026531836]"

// startField is the index of the start time among the fields after the command's name in
// /proc/PID/stat. In proc(5), the start time is field 22, and the first field after the name is
// field 3.
const startField = 22 - 3

// Read returns the ID of the current boot, or "" if the kernel provides none.
func Read() string { return ReadRoot(os.DirFS("/")) }

// ReadRoot is like Read for a host with the given root directory.
func ReadRoot(root fs.FS) string {
	id := ReadKernel(root)
	if id == "" {
		return ""
	}
	if namespace, err := fs.ReadLink(root, namespaceFile); err != nil || namespace == initialPIDNamespace {
		return id
	}
	if start := initStartTime(root); start != "" {
		id += "." + start
	}
	return id
}

// ReadKernel returns the kernel's boot ID, or "" if the kernel provides none. Inside a container it
// is the host's boot ID. Use it for state that lasts as long as the kernel runs, such as counters,
// devices, and the boot ID of a Node.
func ReadKernel(root fs.FS) string {
	b, err := fs.ReadFile(root, bootFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// initStartTime returns the start time of process 1, in clock ticks since the kernel's boot. It
// skips the command's name, which may contain spaces and parentheses.
func initStartTime(root fs.FS) string {
	b, err := fs.ReadFile(root, initStatFile)
	if err != nil {
		return ""
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= startField {
		return ""
	}
	return string(fields[startField])
}
