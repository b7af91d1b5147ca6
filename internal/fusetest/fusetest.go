package fusetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// MountSilent mounts a file system whose server never responds. The returned function ends the server, so that blocked calls return an
// error. The end of the test removes the mount. Without FUSE, the test is skipped.
func MountSilent(t testing.TB, dir string) (end func()) {
	t.Helper()
	return mount(t, dir, func(*os.File) {})
}

// MountDeaf is like MountSilent, but the server reads each request. A process that waits for the response cannot even be killed.
func MountDeaf(t testing.TB, dir string) (end func()) {
	t.Helper()
	return mount(t, dir, receive)
}

func mount(t testing.TB, dir string, serve func(server *os.File)) (end func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("FUSE is needed, which needs root")
	}
	if !hasOwnMounts(t) {
		t.Fatal("the mount would remain when the tests are killed: call mountstest.MainIfRoot in TestMain")
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("FUSE is needed: ", err) // a kernel without FUSE, or without root
	}
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)); err != nil {
		unix.Close(fd)
		t.Skip("FUSE is needed: ", err) // as in a container whose root may not mount
	}
	server := os.NewFile(uintptr(fd), "/dev/fuse") // the file has events only after the mount
	var served sync.WaitGroup
	served.Go(func() { serve(server) })
	end = sync.OnceFunc(func() {
		server.Close()
		served.Wait()
	})
	t.Cleanup(func() {
		end()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return end
}

// hasOwnMounts reports whether the tests run in another mount namespace than the process that started them.
func hasOwnMounts(t testing.TB) bool {
	t.Helper()
	var namespaces [2]string
	for i, pid := range []int{os.Getpid(), os.Getppid()} {
		var err error
		if namespaces[i], err = os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil {
			t.Fatal(err)
		}
	}
	return namespaces[0] != namespaces[1]
}

// CheckBlocked ends the test if the call whose result the channel receives has already returned.
func CheckBlocked(t testing.TB, result <-chan error) {
	t.Helper()
	select {
	case err := <-result:
		t.Fatalf("the call was not blocked: %v", err)
	default:
	}
}

// receive receives requests until the server is closed. It responds only to the first one, which opens the connection.
// https://www.kernel.org/doc/html/latest/filesystems/fuse/index.html
func receive(server *os.File) {
	request := make([]byte, 1<<17+4096)
	if _, err := server.Read(request); err != nil {
		return
	}
	reply := struct {
		Len                    uint32
		Error                  int32
		Unique                 uint64
		Major, Minor           uint32
		MaxReadahead, Flags    uint32
		MaxBackground, Limit   uint16
		MaxWrite, TimeGranular uint32
		_                      [9]uint32
	}{Len: 16 + 64, Unique: binary.NativeEndian.Uint64(request[8:]), Major: 7, Minor: 31, MaxWrite: 4096, TimeGranular: 1}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, reply); err != nil {
		return
	}
	if _, err := server.Write(b.Bytes()); err != nil {
		return
	}
	for {
		if _, err := server.Read(request); err != nil {
			return
		}
	}
}
