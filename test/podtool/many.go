package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// createFiles creates many files.
func createFiles(ctx context.Context, dir, many string) error {
	n, err := strconv.Atoi(many)
	if err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			return err
		}
	}
	fmt.Println("made", n, "files")
	<-ctx.Done()
	return nil
}

// forkMany starts many processes. Each process is a fork of this process, has a single thread, and
// does not return to Go code. It would take too long to execute a program for each process.
func forkMany(ctx context.Context, many string) error {
	n, err := strconv.Atoi(many)
	if err != nil {
		return err
	}
	for range n {
		pid, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
		if errno != 0 {
			return os.NewSyscallError("clone", errno)
		}
		for pid == 0 { // the children end when this process, which is process 1, ends
			syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	fmt.Println("started", n, "processes")
	<-ctx.Done()
	return nil
}
