package readonly

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFault(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EIO: true, unix.EBADMSG: true, unix.EUCLEAN: true, unix.EROFS: true, unix.ENOSPC: false, unix.ENOENT: false, unix.EPERM: false,
	} {
		wrapped := fmt.Errorf("read it: %w", errors.Join(errors.New("other"), &fs.PathError{Op: "read", Path: "x", Err: err}))
		if got := IsDiskFault(wrapped); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
	if _, err := os.ReadFile("/proc/self/mem"); !IsDiskFault(err) { // no memory is mapped at its beginning
		t.Errorf("a file that cannot be read: %v", err)
	}
	if IsDiskFault(nil) {
		t.Error("success is a fault")
	}
}
