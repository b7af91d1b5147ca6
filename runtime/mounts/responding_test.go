package mounts

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMayBeFUSE checks that mayBeFUSE does not access a FUSE file system. The server of the file system does not respond.
func TestMayBeFUSE(t *testing.T) {
	host, _ := newHost(t)
	for _, dir := range []string{host + "/served", host + "/elsewhere"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	tmpfs(t, host+"/elsewhere")
	if !mayBeFUSE("/proc/self/root") {
		t.Error("a path that may lead to another mount namespace cannot be FUSE")
	}
	link := t.TempDir() + "/link"
	must(t, os.Symlink(host+"/served", link))
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if os.IsNotExist(err) {
		t.Skip("this kernel has no FUSE")
	}
	must(t, err)
	defer dev.Close() // ends the connection of the file system
	must(t, unix.Mount("nobody", host+"/served", "fuse.nobody", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())))
	defer func() { must(t, unix.Unmount(host+"/served", unix.MNT_DETACH)) }()
	for path, want := range map[string]bool{
		"/": false, "/missing/at/all": false, host + "/served": true, host + "/served/below": true, link: true, link + "/below": true,
		host + "/elsewhere": true, // a symlink in another mount could lead to FUSE
	} {
		if got := mayBeFUSE(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := CheckResponding(host + "/elsewhere"); err != nil {
		t.Errorf("without the program stat: %v", err)
	}
}
