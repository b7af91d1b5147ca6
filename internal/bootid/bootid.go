package bootid

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
)

// These are paths below the root directory.
const (
	bootFile  = "proc/sys/kernel/random/boot_id"
	spaceFile = "proc/self/ns/pid"
	firstFile = "proc/1/stat"
)

// machineProcesses is the kernel's initial PID namespace (PROC_PID_INIT_INO in proc_ns.h).
const machineProcesses = "pid:[4026531836]"

// startField is the index of the start time among the fields after the command's name in
// /proc/PID/stat: it is field 22 of proc(5), and the first field after the name is field 3.
const startField = 22 - 3

// Read returns the ID of the current boot, or "" if the kernel provides none.
func Read() string { return In(os.DirFS("/")) }

// In does the same as Read for a host with the given root directory.
func In(root fs.FS) string {
	id := Kernel(root)
	if id == "" {
		return ""
	}
	if space, err := fs.ReadLink(root, spaceFile); err != nil || space == machineProcesses {
		return id
	}
	if start := started(root); start != "" {
		id += "." + start
	}
	return id
}

// Kernel returns the boot ID of the kernel, also inside a container, or "". Use it for facts that
// last as long as the kernel runs: its counters, its devices, the boot ID of a Node.
func Kernel(root fs.FS) string {
	b, err := fs.ReadFile(root, bootFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// started returns the start time of process 1, in clock ticks since the kernel's boot. The
// command's name in the file may contain spaces and parentheses.
func started(root fs.FS) string {
	b, err := fs.ReadFile(root, firstFile)
	if err != nil {
		return ""
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= startField {
		return ""
	}
	return string(fields[startField])
}
