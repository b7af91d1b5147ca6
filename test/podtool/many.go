package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
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

// forkUntil starts processes until this machine has the given number of processes and threads, and replaces processes of other programs
// that end. Each process is a fork of this process, has a single thread, and does not return to Go code. It would take too long to execute
// a program for each process.
func forkUntil(ctx context.Context, total string) error {
	want, err := strconv.Atoi(total)
	if err != nil {
		return err
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		threads, err := countThreads()
		if err != nil {
			return err
		}
		for range want - threads {
			pid, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
			if errno != 0 {
				return os.NewSyscallError("clone", errno)
			}
			for pid == 0 { // the children end when this process, which is process 1, ends
				syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// countThreads returns the number of processes and threads of this machine, also in other PID namespaces.
func countThreads() (int, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	var load [3]float64
	var running, all int
	_, err = fmt.Sscanf(string(text), "%f %f %f %d/%d", &load[0], &load[1], &load[2], &running, &all)
	return all, err
}
