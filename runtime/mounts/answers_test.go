package mounts

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMayBeFUSE: paths that another program must probe first are found without accessing a file
// system whose server does not respond.
func TestMayBeFUSE(t *testing.T) {
	host, _ := world(t)
	for _, dir := range []string{host + "/served", host + "/elsewhere"} {
		must(t, os.Mkdir(dir, 0o755))
	}
	tmpfs(t, host+"/elsewhere")
	link := t.TempDir() + "/link"
	must(t, os.Symlink(host+"/served", link))
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if os.IsNotExist(err) {
		t.Skip("this kernel has no FUSE")
	}
	must(t, err)
	defer dev.Close() // ends the file system
	must(t, unix.Mount("nobody", host+"/served", "fuse.nobody", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())))
	defer func() { must(t, unix.Unmount(host+"/served", unix.MNT_DETACH)) }()
	for path, want := range map[string]bool{
		"/": false, "/missing/at/all": false, host + "/served": true, host + "/served/below": true, link: true, link + "/below": true,
		host + "/elsewhere": true, // it is another mount, and links could lead on from there
	} {
		if got := mayBeFUSE(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := Answers(host + "/elsewhere"); err != nil {
		t.Errorf("on a machine without the program that asks: %v", err)
	}
}
