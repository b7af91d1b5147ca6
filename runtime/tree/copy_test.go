package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// copyOf copies a directory to a new temporary directory.
func copyOf(t *testing.T, ctx context.Context, from string, room Room) (string, Room, error) {
	t.Helper()
	to := t.TempDir()
	src, err := os.Open(from)
	must(t, err)
	defer src.Close()
	dst, err := os.Open(to)
	must(t, err)
	defer dst.Close()
	err = Copy(ctx, src, dst, &room)
	return to, room, err
}

var plenty = Room{Bytes: 1 << 30, Files: 1 << 20}

// describe returns a text with all files of a directory. It contains the properties that Copy must preserve.
func describe(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		name, _ := filepath.Rel(dir, path)
		fmt.Fprint(&out, name, " ", st.Mode, " ", st.Uid, " ", st.Gid, " ", st.Rdev, " ", st.Mtim.Nano())
		value := make([]byte, 100)
		for _, attr := range []string{"user.note", "security.capability"} {
			if n, err := unix.Lgetxattr(path, attr, value); err == nil {
				fmt.Fprintf(&out, " %s=%x", attr, value[:n])
			}
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			must(t, err)
			fmt.Fprintf(&out, " links %d %q", st.Nlink, b)
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			must(t, err)
			fmt.Fprint(&out, " -> ", target)
		}
		fmt.Fprintln(&out)
		return nil
	}))
	return out.String()
}

// TestCopy checks that a copy contains files of every type with their owners, modes, times and attributes. Symlinks are not followed.
func TestCopy(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	from := t.TempDir()
	in := func(name string) string { return filepath.Join(from, name) }
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("host"), 0o600),
		os.MkdirAll(in("a/b/c"), 0o755), os.WriteFile(in("a/b/file"), []byte("text"), 0o600), os.Chown(in("a/b/file"), 7, 8),
		os.Chmod(in("a/b/file"), 0o4711|os.ModeSetuid),
		os.Link(in("a/b/file"), in("a/second name")), os.Symlink(secret, in("out")), os.Symlink("a", in("in")),
		os.Symlink("nowhere", in("dangling")), os.Lchown(in("in"), 5, 6),
		unix.Mkfifo(in("fifo"), 0o620), unix.Mknod(in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		os.Chmod(in("a/b/c"), 0o777|os.ModeSticky), os.Chown(from, 11, 12), os.Chmod(from, 0o750))
	cap := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	must(t, unix.Setxattr(in("a/b/file"), "security.capability", cap, 0))
	if err := unix.Setxattr(in("a"), "user.note", []byte("kept"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	to, room, err := copyOf(t, t.Context(), from, plenty)
	must(t, err)
	if got, want := describe(t, to), describe(t, from); got != want {
		t.Errorf("the copy is\n%s\nand the original\n%s", got, want)
	}
	if plenty.Files-room.Files != 10 || plenty.Bytes-room.Bytes != 4 {
		t.Errorf("the copy used %d files and %d bytes of its Room", plenty.Files-room.Files, plenty.Bytes-room.Bytes)
	}
}

// TestCopyIsBounded checks that Copy fails if a tree is too large, is too deep, or has too many files. It also fails when its context ends.
func TestCopyIsBounded(t *testing.T) {
	from := t.TempDir()
	for i := range 600 { // more files than one batch
		must(t, os.WriteFile(filepath.Join(from, fmt.Sprint(i)), []byte("x"), 0o600))
	}
	to, _, err := copyOf(t, t.Context(), from, Room{Bytes: 600, Files: 600})
	must(t, err)
	if names, _ := os.ReadDir(to); len(names) != 600 {
		t.Errorf("%d of 600 files were copied", len(names))
	}
	for name, room := range map[string]Room{"bytes": {Bytes: 599, Files: 600}, "files": {Bytes: 600, Files: 599}} {
		if _, _, err := copyOf(t, t.Context(), from, room); !errors.Is(err, ErrNoRoom) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := copyOf(t, ended, from, plenty); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: %v", err)
	}
	deep := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", maxDepth)), 0o700))
	if _, _, err := copyOf(t, t.Context(), deep, plenty); err != nil {
		t.Errorf("%d deep: %v", maxDepth, err)
	}
	must(t, os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", maxDepth+1)), 0o700))
	if _, _, err := copyOf(t, t.Context(), deep, plenty); !errors.Is(err, ErrTooDeep) {
		t.Errorf("%d deep: %v", maxDepth+1, err)
	}
}

// TestCopiesAtOnce checks two copies whose Rooms were measured at the same time. Together they leave half of the disk free. The test also
// copies many small files, which need more disk space than the sum of their sizes.
func TestCopiesAtOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	disk := t.TempDir()
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { must(t, unix.Unmount(disk, 0)) })
	large, small := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(large, "file"), make([]byte, 5<<19), 0o600))
	for i := range 1500 {
		must(t, os.WriteFile(filepath.Join(small, fmt.Sprint(i)), []byte("x"), 0o600))
	}
	into := func(name, from string, room Room) error {
		must(t, os.Mkdir(filepath.Join(disk, name), 0o700))
		src, err := os.Open(from)
		must(t, err)
		defer src.Close()
		dst, err := os.Open(filepath.Join(disk, name))
		must(t, err)
		defer dst.Close()
		return Copy(t.Context(), src, dst, &room)
	}
	first, err := HalfOfFree(disk)
	must(t, err)
	if err := into("small", small, first); !errors.Is(err, ErrNoRoom) {
		t.Errorf("6 MiB of small files in half of 8: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(disk, "small")))
	second, err := HalfOfFree(disk)
	must(t, err)
	if err := into("first", large, first); err != nil {
		t.Errorf("2.5 MiB in half of 8: %v", err)
	}
	if err := into("second", large, second); !errors.Is(err, ErrNoRoom) {
		t.Errorf("5 MiB in half of 8: %v", err)
	}
}

// TestCopyRemembersLittle checks the memory for the names of hard links. The total length of these names is limited.
func TestCopyRemembersLittle(t *testing.T) {
	from := t.TempDir()
	deep := filepath.Join(from, strings.Repeat(strings.Repeat("d", 250)+"/", 12))
	must(t, os.MkdirAll(deep, 0o700))
	for i := range 400 {
		name := filepath.Join(deep, fmt.Sprint(i))
		must(t, os.WriteFile(name, nil, 0o600))
		must(t, os.Link(name, name+"-"))
	}
	src, err := os.Open(from)
	must(t, err)
	defer src.Close()
	dst, err := os.Open(t.TempDir())
	must(t, err)
	defer dst.Close()
	room := plenty
	c := copier{ctx: t.Context(), top: int(dst.Fd()), room: &room, linked: map[inode]string{}}
	var st unix.Stat_t
	must(t, unix.Fstat(int(src.Fd()), &st))
	must(t, c.copyDirectory(src, dst, &st, "", 0))
	if c.names > maxNames || len(c.linked) == 0 || len(c.linked) == 400 {
		t.Errorf("%d names of %d bytes are stored", len(c.linked), c.names)
	}
	if taken := plenty.Files - room.Files; taken != 812 {
		t.Errorf("%d files were copied", taken)
	}
}

// TestHalf checks that HalfOfFree returns a Room of about half of the free space.
func TestHalf(t *testing.T) {
	dir := t.TempDir()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	room, err := HalfOfFree(dir)
	if free := st.Bavail * uint64(st.Bsize); err != nil || room.Bytes > free || room.Bytes < free/4 || room.Files == 0 {
		t.Errorf("%+v of %d bytes: %v", room, free, err)
	}
	if _, err := HalfOfFree(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing directory has a Room")
	}
}
