package readonly_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/readonly"
)

func TestFault(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EIO: true, unix.EBADMSG: true, unix.EUCLEAN: true, unix.EROFS: true, unix.ENOSPC: false, unix.ENOENT: false, unix.EPERM: false,
	} {
		wrapped := fmt.Errorf("read it: %w", errors.Join(errors.New("other"), &fs.PathError{Op: "read", Path: "x", Err: err}))
		if got := readonly.IsDiskFault(wrapped); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	if _, err := os.ReadFile("/proc/self/mem"); !readonly.IsDiskFault(err) { // no memory is mapped at its beginning
		t.Errorf("a file that cannot be read: %v", err)
	}
	if readonly.IsDiskFault(nil) {
		t.Error("success is a fault")
	}
}

func TestShortage(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EMFILE: true, unix.ENFILE: true, unix.ENOMEM: true, unix.EAGAIN: true, unix.EIO: false, unix.ENOENT: false, unix.ECONNREFUSED: false,
	} {
		if got := readonly.IsShortage(fmt.Errorf("read it: %w", &fs.PathError{Op: "open", Path: "x", Err: err})); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestTryTwice checks that only a disk fault causes a second attempt, and that there is no third.
func TestTryTwice(t *testing.T) {
	for name, c := range map[string]struct {
		results []error
		want    error
	}{
		"success":       {[]error{nil}, nil},
		"another error": {[]error{unix.ENOSPC}, unix.ENOSPC},
		"a short fault": {[]error{unix.EIO, nil}, nil},
		"a long fault":  {[]error{unix.EIO, unix.EIO}, unix.EIO},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := readonly.TryTwice(func() error {
				calls++
				return c.results[calls-1]
			})
			if !errors.Is(err, c.want) || calls != len(c.results) {
				t.Errorf("%s: %v after %d calls", name, err, calls)
			}
		})
	}
}
