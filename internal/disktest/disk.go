package disktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A Disk is a small file system that a test can fill completely.
type Disk struct {
	testing.TB
	Dir string // the mount point
}

// New mounts a disk of 2 MB until the test ends. It skips the test without root.
func New(t testing.TB) *Disk {
	t.Helper()
	return NewOf(t, 2<<20)
}

// NewOf is like New for a disk of the given size in bytes.
func NewOf(t testing.TB, size int64) *Disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	d := &Disk{t, t.TempDir()}
	if err := syscall.Mount("tmpfs", d.Dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		t.Skip("cannot mount a small disk:", err) // as in a container whose root may not mount
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.Dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Fill leaves no space on the disk, except in blocks that files already have.
func (d *Disk) Fill() {
	d.Helper()
	f, err := os.Create(filepath.Join(d.Dir, "fill"))
	if err != nil {
		d.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			d.Fatal(err)
		}
	}
}

// Shrink frees a number of bytes of those that Fill has written.
func (d *Disk) Shrink(free int64) {
	d.Helper()
	name := filepath.Join(d.Dir, "fill")
	fi, err := os.Stat(name)
	if err == nil {
		err = os.Truncate(name, max(0, fi.Size()-free))
	}
	if err != nil {
		d.Fatal(err)
	}
}

// Exhaust fills the disk, and then calls write with longer and longer texts until write fails. After that, not even a small write to the
// same file succeeds.
func (d *Disk) Exhaust(write func(text string) error) {
	d.Helper()
	d.Fill()
	text := "a"
	for write(text) == nil {
		text += "a"
	}
}

// Free removes what Fill has written.
func (d *Disk) Free() {
	d.Helper()
	if err := os.Remove(filepath.Join(d.Dir, "fill")); err != nil {
		d.Fatal(err)
	}
}

// Copy copies the files of the disk to a new directory, as a power cut leaves them, and returns the directory.
func (d *Disk) Copy() string {
	d.Helper()
	to := d.TempDir()
	files, err := os.ReadDir(d.Dir)
	if err != nil {
		d.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "fill" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(d.Dir, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), data, 0o600)
		}
		if err != nil {
			d.Fatal(err)
		}
	}
	return to
}
