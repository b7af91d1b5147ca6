package netns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A Sysctl is the name of a file below /proc/sys/net, and its value. If Optional is true, a missing file is not an error.
type Sysctl struct {
	Name, Value string
	Optional    bool
}

// Set writes the sysctls whose current values differ. It does so on a thread in the namespace, because the kernel shows each thread the
// /proc/sys/net of its own namespace.
func (n NS) Set(values ...Sysctl) error {
	_, err := n.Swap(values...)
	return err
}

// Swap is like Set. It returns the changed sysctls with their previous values, so that the caller can restore them. After an
// error, it returns the sysctls that it has already changed.
func (n NS) Swap(values ...Sysctl) (before []Sysctl, err error) {
	err = n.Do(func() error {
		before, err = SwapHere(values...)
		return err
	})
	return before, err
}

// SwapHere is like Swap, in the namespace of the current thread.
func SwapHere(values ...Sysctl) (before []Sysctl, err error) {
	for _, s := range values {
		previous, err := s.write()
		if err != nil {
			return before, err
		}
		if previous != s.Value {
			before = append(before, Sysctl{Name: s.Name, Value: previous, Optional: s.Optional})
		}
	}
	return before, nil
}

// DifferingSysctls returns the sysctls whose current values differ from the given ones. It ignores sysctls that the kernel does not have.
func (n NS) DifferingSysctls(values ...Sysctl) (out []Sysctl, err error) {
	err = n.Do(func() error {
		for _, s := range values {
			content, err := os.ReadFile("/proc/sys/net/" + s.Name)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("read sysctl net.%s: %w", s.Name, err)
			}
			if err == nil && strings.TrimSuffix(string(content), "\n") != s.Value {
				out = append(out, s)
			}
		}
		return nil
	})
	return out, err
}

// maxValue is the maximum size of the value of a sysctl that is written.
const maxValue = 256

// write sets the sysctl and returns its previous value. For an optional sysctl that does not exist, it returns the new value. It opens the
// file only once. If the file cannot be opened for writing, a sysctl that has the value already is not an error.
func (s Sysctl) write() (previous string, err error) {
	path := "/proc/sys/net/" + s.Name
	fd, err := openFile(path, unix.O_RDWR)
	writable := err == nil
	if !writable {
		fd, _ = openFile(path, unix.O_RDONLY)
	}
	if fd >= 0 {
		defer unix.Close(fd)
		var b [maxValue]byte
		n, failed := unix.Pread(fd, b[:], 0)
		if previous = string(bytes.TrimSuffix(b[:max(n, 0)], []byte("\n"))); failed == nil && previous == s.Value {
			return previous, nil
		}
	}
	if writable {
		_, err = unix.Pwrite(fd, []byte(s.Value), 0)
	}
	if s.Optional && errors.Is(err, os.ErrNotExist) {
		return s.Value, nil
	}
	if err != nil {
		return "", fmt.Errorf("set sysctl net.%s=%s: %w", s.Name, s.Value, err)
	}
	return previous, nil
}
