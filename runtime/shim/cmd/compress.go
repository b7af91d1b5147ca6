package main

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/untrusted"
)

// compress replaces the file name below root by name.gz. A file that is gone already is
// success; what is no regular file is left alone, and no link is followed to it: a pod
// can put links among the logs of the host, and in place of their directory.
func compress(root, name string) error {
	sub, base := filepath.Split(name)
	dir, err := untrusted.OpenDir(root, sub)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	here := "/proc/self/fd/" + strconv.Itoa(fd)
	in, err := untrusted.Open(here, base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := base + ".gz.tmp"
	if err := unix.Unlinkat(fd, tmp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) { // of one that was cut off
		return err
	}
	out, err := untrusted.OpenFile(here, tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer unix.Unlinkat(fd, tmp, 0)
	w, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	if err = errors.Join(err, w.Close(), out.Close()); err != nil {
		return err
	}
	if err := unix.Renameat(fd, tmp, fd, base+".gz"); err != nil {
		return err
	}
	return unix.Unlinkat(fd, base, 0)
}
