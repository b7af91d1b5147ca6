package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// showShared executes a verb that prints or changes a shared resource of the pod's containers.
func showShared(verb string, next func() string) bool {
	switch verb {
	case "super":
		showSuper(next())
	case "segment":
		key, err := strconv.Atoi(next())
		exitOnError(err)
		size, err := strconv.Atoi(next())
		exitOnError(err)
		flags := 0o600
		if size > 0 {
			flags |= unix.IPC_CREAT
		}
		_, err = unix.SysvShmGet(key, size, flags)
		fmt.Println("segment:", err)
	case "rename":
		exitOnError(unix.Sethostname([]byte(next())))
	default:
		return false
	}
	return true
}

// showSuper prints the first option of the superblock at a mount point: ro or rw. The mount itself
// may have the other option.
func showSuper(path string) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	exitOnError(err)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if fields[4] == path {
			options, _, _ := strings.Cut(fields[len(fields)-1], ",")
			fmt.Println(options)
		}
	}
}
