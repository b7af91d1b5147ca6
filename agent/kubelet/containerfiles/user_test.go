package containerfiles

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// guest is the user of a container that is not root. It is a member of the group 5555.
var guest = user{uid: 4321, gid: 1234, groups: []uint32{5555}}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// guestRoot returns a Root whose directory /own belongs to guest, and whose other directories belong to root.
func guestRoot(t *testing.T) (r *Root, dir string) {
	t.Helper()
	needRoot(t)
	r, dir, _ = root(t)
	r.user = &guest
	own := filepath.Join(dir, "own")
	if err := errors.Join(os.Mkdir(own, 0o755), os.Chown(own, guest.uid, guest.gid)); err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func ownerOf(t *testing.T, name string) [2]int {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return [2]int{int(st.Uid), int(st.Gid)}
}

func tree() []entry {
	return []entry{{name: "x/", kind: tar.TypeDir}, file("x/f", "text"), {name: "x/l", link: "f", kind: tar.TypeSymlink}}
}

// TestOwner checks that new files belong to the container's user. Afterwards, all other goroutines must still create files as root.
func TestOwner(t *testing.T) {
	r, dir := guestRoot(t)
	before, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err := r.Unpack(archive(t, tree()...), "/own", "x"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/own/x", "/own/x/f", "/own/x/l"} {
		if got := ownerOf(t, dir+name); got != [2]int{4321, 1234} {
			t.Errorf("%s belongs to %v", name, got)
		}
	}
	if after, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); after != before {
		t.Errorf("dumpable is %d, was %d", after, before)
	}
	for range 100 {
		done := make(chan [2]int)
		go func() {
			name := filepath.Join(t.TempDir(), "f")
			os.WriteFile(name, nil, 0o600)
			done <- ownerOf(t, name)
		}()
		if got := <-done; got != [2]int{0, 0} {
			t.Fatalf("another goroutine makes files of %v", got)
		}
	}
}

// TestOnlyOwnAccess checks that a copy writes only to places to which the container's user may write, even if a symlink in the container
// leads to another place.
func TestOnlyOwnAccess(t *testing.T) {
	r, dir := guestRoot(t)
	if err := errors.Join(os.Symlink("/etc", dir+"/own/to-etc"), os.WriteFile(dir+"/etc/passwd", []byte("root"), 0o644),
		os.Mkdir(dir+"/shared", 0o770), os.Chown(dir+"/shared", 0, 5555)); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"/etc/new", "/own/to-etc/new", "/own/to-etc/passwd", "/data/a"} {
		if err := r.Unpack(archive(t, file("x", "evil")), to, "x"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", to, err)
		}
	}
	if text, err := os.ReadFile(dir + "/etc/passwd"); string(text) != "root" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Chmod(dir+"/shared", 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := r.Unpack(archive(t, tree()...), "/shared", "x"); err != nil {
		t.Errorf("a directory of a supplementary group: %v", err)
	} else if got := ownerOf(t, dir+"/shared/x/f"); got != [2]int{4321, 5555} {
		t.Errorf("the file in it belongs to %v", got)
	}
	strong := guest
	strong.capabilities = 1 << unix.CAP_DAC_OVERRIDE
	r.user = &strong
	if err := r.Unpack(archive(t, file("x", "new")), "/etc/passwd", "x"); err != nil {
		t.Errorf("with CAP_DAC_OVERRIDE: %v", err)
	}
	weak := user{capabilities: 0}
	r.user = &weak
	if err := r.Unpack(archive(t, file("x", "new")), "/own/new", "x"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("root without capabilities: %v", err)
	}
}

// TestSwap checks a container that swaps the new files of a copy with files of root while the copy runs. The files of root must never get
// another owner.
func TestSwap(t *testing.T) {
	r, dir := guestRoot(t)
	victim, fresh := dir+"/own/victim", dir+"/own/x"
	if err := errors.Join(os.Mkdir(victim, 0o755), os.WriteFile(victim+"/secret", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	fd, err := os.Open(victim)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, victim, unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 3000 {
		r.Unpack(archive(t, entry{name: "x", kind: tar.TypeDir}), "/own/x", "x")
		for _, name := range []string{fresh + "/x", fresh} { // a second copy is made in the first one
			os.Remove(name) // never the victim, which is not empty
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(fd.Fd()), &st); err != nil || st.Uid != 0 || st.Gid != 0 {
			t.Errorf("the victim belongs to %d:%d, %v", st.Uid, st.Gid, err)
			break
		}
	}
	close(stop)
	<-done
}

func TestParseUser(t *testing.T) {
	const status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t0000000000000002\n"
	u, err := parseUser([]byte(status))
	if err != nil || u.uid != 2 || u.gid != 6 || !slices.Equal(u.groups, []uint32{9, 10}) || u.capabilities != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	for name, text := range map[string]string{
		"no user": strings.Replace(status, "Uid", "X", 1), "no group": strings.Replace(status, "Gid", "X", 1), "no capabilities": strings.Replace(status, "CapEff", "X", 1), "cut off": status[:len(status)-22], "no number": strings.Replace(status, "9", "a", 1), "empty": "", "too long": status + strings.Repeat("x", maxText),
	} {
		if u, err := parseUser([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, u)
		}
	}
}

// TestIDMappedMount writes to an ID-mapped mount, such as a volume of a pod with hostUsers: false. The pod's user 0 is the user 100000 on
// the host. On the disk, the files of this user belong to the user 0.
func TestIDMappedMount(t *testing.T) {
	needRoot(t)
	const first = 100000
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: first, Size: 65536}}
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no user namespaces here:", err)
	}
	defer cmd.Wait()
	defer in.Close()
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer users.Close()
	dir := t.TempDir()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Skip("no detached mounts here:", err)
	}
	r := newRoot(fd)
	defer r.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		t.Skip("this file system has no ID-mapped mounts:", err)
	}
	r.user = &user{uid: first, gid: first}
	if err := r.Unpack(archive(t, tree()...), "/x", "x"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/x", "/x/f", "/x/l"} {
		if got := ownerOf(t, dir+name); got != [2]int{0, 0} {
			t.Errorf("%s belongs to %v on the disk", name, got)
		}
	}
}

// TestPanicEndsOneCopy checks that a panic while files are written is an error of this copy. In the goroutine of the container's user,
// the HTTP server does not recover it.
func TestPanicEndsOneCopy(t *testing.T) {
	needRoot(t)
	if err := guest.do(func() error { panic("damaged") }); err == nil || !strings.HasPrefix(err.Error(), "panic: damaged") {
		t.Errorf("error %v", err)
	}
}
