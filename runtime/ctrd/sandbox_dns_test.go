package ctrd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUpdateDNSInterrupted checks that an update of a resolv.conf which was interrupted at any point is completed by a later one, with
// other servers. Content that a container has written stays.
func TestUpdateDNSInterrupted(t *testing.T) {
	const first, longer = "", "nameserver 192.0.2.111\nnameserver 192.0.2.112\n"
	const short, want = "nameserver 192.0.2.1\n", "nameserver 192.0.2.33\n"
	for _, x := range []struct{ content, written, next string }{
		{first, "", ""},                              // no update yet
		{first, "", short},                           // before the file is written
		{first, "", short[:5]},                       // the copy is not complete
		{short, "", short},                           // before the rename
		{short, longer, short},                       // before the rename
		{short + longer[len(short):], longer, short}, // before the file is truncated
		{longer, short, longer},                      // before the rename
		{longer, longer, longer[:9]},                 // the copy is not complete
		{longer, longer, ""},                         // complete
		{want, "", want}, {want, longer, ""},         // the file has the servers already
		{first, longer, ""},                        // the container has restored the file
		{"nameserver 192.0.2.99\n", longer, short}, // the container has changed the file
		{short + longer[len(short):] + "#", longer, short},
	} {
		dir := t.TempDir()
		put := func(name, content string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			return string(b)
		}
		put("resolv.conf", x.content)
		if x.written != "" {
			put(writtenResolv, x.written)
		}
		if x.next != "" {
			put(nextResolv, x.next)
		}
		theirs := strings.Contains(x.content, "99") || strings.Contains(x.content, "#")
		if err := rewriteResolv(dir, []byte(first), []byte(want)); err != nil {
			t.Errorf("%q: %v", x, err)
		}
		got, written, next := read("resolv.conf"), read(writtenResolv), read(nextResolv)
		if theirs && got != x.content || !theirs && (got != want || written != want || next != "") {
			t.Errorf("%q: got %q, written %q, next %q", x, got, written, next)
		}
	}
	if err := rewriteResolv(filepath.Join(t.TempDir(), "gone"), nil, []byte(want)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

// TestUpdateDNSWithoutSpace checks that a resolv.conf keeps its content while the sandbox's file system is full. It is updated when there
// is space again.
func TestUpdateDNSWithoutSpace(t *testing.T) {
	const first, want = "", "nameserver 192.0.2.33\n"
	for _, inodes := range []bool{false, true} {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k,nr_inodes=8"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		path := filepath.Join(dir, "resolv.conf")
		if err := os.WriteFile(path, []byte(first), 0o644); err != nil {
			t.Fatal(err)
		}
		var full []string
		for i := range 8 {
			name, size := filepath.Join(dir, string(rune('a'+i))), 8<<10
			if inodes {
				size = 0
			}
			if os.WriteFile(name, make([]byte, size), 0o600) != nil && !inodes {
				_ = os.Truncate(name, 0)
			}
			full = append(full, name)
		}
		if err := rewriteResolv(dir, []byte(first), []byte(want)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("inodes %v: %v", inodes, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != first {
			t.Errorf("inodes %v: %q, %v", inodes, got, err)
		}
		for _, name := range full {
			_ = os.Remove(name)
		}
		if err := rewriteResolv(dir, []byte(first), []byte(want)); err != nil {
			t.Error(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("inodes %v: %q", inodes, got)
		}
	}
}
