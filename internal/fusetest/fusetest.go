package fusetest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// MountSilent mounts a file system whose server never responds. The returned function ends the server, so that blocked calls return an
// error. The end of the test removes the mount. Without FUSE, the test is skipped.
func MountSilent(t testing.TB, dir string) (end func()) {
	t.Helper()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("FUSE is needed: ", err)
	}
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)); err != nil {
		unix.Close(server)
		t.Skip("FUSE is needed: ", err)
	}
	ended := false
	end = func() {
		if !ended {
			unix.Close(server)
			ended = true
		}
	}
	t.Cleanup(func() {
		end()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return end
}
