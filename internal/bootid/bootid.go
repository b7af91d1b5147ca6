package bootid

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
)

// Paths below the root directory.
const (
	bootFile  = "proc/sys/kernel/random/boot_id"
	spaceFile = "proc/self/ns/pid"
	firstFile = "proc/1/stat"
)

// machineProcesses is the process namespace that the kernel starts with
// (PROC_PID_INIT_INO in the kernel's proc_ns.h).
const machineProcesses = "pid:[4026531836]"

// startField is the start time's place behind the command's name in /proc/PID/stat: field 22
// of proc(5), where the first field behind the name is the third.
const startField = 22 - 3

// Read returns the ID of the present boot, or "" where the kernel names none.
func Read() string { return In(os.DirFS("/")) }

// In is Read for a host whose root directory is given.
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

// Kernel returns the ID of the kernel's own boot, also inside a container, or "". It is for
// facts that live as long as the kernel does: its counters, its devices, what a Node reports.
func Kernel(root fs.FS) string {
	b, err := fs.ReadFile(root, bootFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// started returns when the first process was started, in clock ticks after the boot of the
// kernel. The command's name may hold spaces and parentheses.
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
