package main

import (
	"fmt"
	"strconv"
	"syscall"
)

// createNode creates a node of a block or character device.
func createNode(args []string) error {
	if len(args) != 4 || args[1] != "b" && args[1] != "c" {
		return fmt.Errorf("not a file, b or c, and two numbers: %q", args)
	}
	mode := uint32(syscall.S_IFCHR)
	if args[1] == "b" {
		mode = syscall.S_IFBLK
	}
	major, err := strconv.ParseUint(args[2], 10, 12)
	if err != nil {
		return err
	}
	minor, err := strconv.ParseUint(args[3], 10, 20)
	if err != nil {
		return err
	}
	dev := minor&0xff | major<<8 | minor>>8<<20 // in the format of the kernel's new_encode_dev
	if err := syscall.Mknod(args[0], mode|0o600, int(dev)); err != nil {
		return fmt.Errorf("mknod %s: %w", args[0], err)
	}
	return nil
}
