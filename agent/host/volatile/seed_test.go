package volatile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestSeedUnreadable checks a file that the disk can read only in part. The copy must not contain the part. Other errors are reported.
func TestSeedUnreadable(t *testing.T) { synctest.Test(t, testSeedUnreadable) }

func testSeedUnreadable(t *testing.T) {
	to := filepath.Join(t.TempDir(), "metadata.db")
	for _, test := range []struct {
		why     error
		partial bool
		want    error
	}{
		{unix.EIO, true, nil},
		{unix.EIO, false, nil},
		{unix.ENOSPC, true, unix.ENOSPC},
		{nil, true, nil},
	} {
		seed := seeder{copyFile: func(from, to string) error {
			if test.partial {
				if err := os.WriteFile(to, []byte("part"), 0o600); err != nil {
					return err
				}
			}
			if test.why == nil {
				return nil
			}
			return fmt.Errorf("read %s: %w", from, test.why)
		}}
		err := seed.seedFile("from", to, false)
		if !errors.Is(err, test.want) {
			t.Errorf("%v: %v", test.why, err)
		}
		if _, err := os.Lstat(to); errors.Is(test.why, unix.EIO) && !os.IsNotExist(err) {
			t.Errorf("%v: the file exists (%v)", test.why, err)
		}
	}
	attempts := 0
	seed := seeder{copyFile: func(_, to string) error { // the disk could not read it for a moment
		if attempts++; attempts == 1 {
			return errors.Join(os.WriteFile(to, []byte("part"), 0o600), unix.EIO)
		}
		return os.WriteFile(to, []byte("whole"), 0o600)
	}}
	err := seed.seedFile("from", to, false)
	if text, readErr := os.ReadFile(to); err != nil || readErr != nil || string(text) != "whole" || len(seed.unread) > 0 {
		t.Errorf("%q, %v, %v, %q", text, err, readErr, seed.unread)
	}
}

// TestSeedFaults copies the records of containers from a disk that does not return one file or directory, or nothing. The copy has
// everything else. Instead of a record that cannot be read, it has a link to the record on the disk, so that its reader gets the fault.
func TestSeedFaults(t *testing.T) {
	top := t.TempDir()
	from := top + "/containers"
	for _, path := range []string{"a/record.json", "a/upper/x", "b/record.json", "b/upper/x", "db"} {
		path = filepath.Join(from, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte("disk"), 0o640))
	}
	const linkA, linkB = "a/upper->a/upper", "b/upper->b/upper"
	all := []string{"a", "a/record.json", linkA, "b", "b/record.json", linkB, "db"}
	for _, c := range []struct {
		what string
		bad  map[string]bool // what the disk does not return: the content of a file, the list of a directory, or the status ("stat ")
		want []string
	}{
		{"nothing", nil, all},
		{"a record", map[string]bool{"a/record.json": true}, []string{"a", "a/record.json->a/record.json", linkA, "b", "b/record.json", linkB, "db"}},
		{"all records", map[string]bool{"a/record.json": true, "b/record.json": true},
			[]string{"a", "a/record.json->a/record.json", linkA, "b", "b/record.json->b/record.json", linkB, "db"}},
		{"the database", map[string]bool{"db": true}, all[:6]},
		{"the end of a container's directory", map[string]bool{"a": true}, []string{"a", "a/record.json", "b", "b/record.json", linkB, "db"}},
		{"the end of the directory", map[string]bool{".": true}, all[:3]},
		{"the status of a directory", map[string]bool{"stat a": true}, all},
		{"the status of the directory", map[string]bool{"stat .": true}, all},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := filepath.Join(t.TempDir(), "copy")
				seed, disk := newSeeder(), newSeeder()
				fault := func(kind, path string) error {
					rel, err := filepath.Rel(from, path)
					if err == nil && c.bad[kind+rel] {
						err = &fs.PathError{Op: "read", Path: path, Err: unix.EIO}
					}
					return err
				}
				seed.readDir = func(dir string) ([]fs.DirEntry, error) {
					entries, err := disk.readDir(dir)
					if fault := fault("", dir); fault != nil {
						return entries[:1], fault
					}
					return entries, err
				}
				seed.copyFile = func(from, to string) error {
					if err := fault("", from); err != nil {
						return err
					}
					return disk.copyFile(from, to)
				}
				seed.stat = func(path string) (fs.FileInfo, error) {
					if err := fault("stat ", path); err != nil {
						return nil, err
					}
					return disk.stat(path)
				}
				must(t, seed.seedDirectory(from, to, 2))
				if got := tree(t, from, to); !slices.Equal(got, c.want) {
					t.Errorf("the copy has\n%q instead of\n%q", got, c.want)
				}
				if len(seed.unread) != len(c.bad) {
					t.Errorf("%q are noted for %v", seed.unread, c.bad)
				}
			})
		})
	}
}

// tree returns the relative paths of the files in a copy, and those of the targets of links.
func tree(t *testing.T, from, to string) (paths []string) {
	t.Helper()
	must(t, filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == to {
			return err
		}
		name, err := filepath.Rel(to, path)
		if e.Type() == fs.ModeSymlink {
			target, linkErr := os.Readlink(path)
			name, err = name+"->"+strings.TrimPrefix(target, from+"/"), errors.Join(err, linkErr)
		}
		paths = append(paths, name)
		return err
	}))
	return paths
}
