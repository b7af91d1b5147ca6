package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// runSole records its start in a file and holds the file's lock until the context ends. The kernel
// releases the lock when the last process that has the file open ends, no matter how it ends.
func runSole(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_, wrote := fmt.Fprintln(f, "twice")
		return errors.Join(err, wrote)
	}
	if _, err := fmt.Fprintln(f, "started"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
