package guard

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Reap reaps the children that this process started in earlier roles, if it had any.
func (r *Role) Reap(ctx context.Context) {
	if r.After {
		reapInherited(ctx)
	}
}

// reapInherited reaps the children that this process inherited from an earlier role, such as shims, when they exit. Otherwise
// they would remain as zombies. It must be called before the process starts other children. It returns at once. Its
// goroutine ends when ctx ends or the last of these children has exited.
func reapInherited(ctx context.Context) {
	left := childPIDs()
	if len(left) == 0 {
		return
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		defer signal.Stop(ended)
		for {
			left = slices.DeleteFunc(left, func(pid int) bool {
				got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
				return got == pid || err != nil && err != syscall.EINTR
			})
			if len(left) == 0 {
				return
			}
			select {
			case <-ended:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// childPIDs returns the PIDs of this process's children.
func childPIDs() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is valid
	for _, name := range lists {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		for f := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
