package store

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRemovedWhileOpen removes or moves files of the database while the store is open. It checks that the next start finds all rows that
// were written before and after the removal. In half of the cases the store is not closed, as after kill -9. There the test writes another
// row after the removal, because the store checks the files only when it writes.
func TestRemovedWhileOpen(t *testing.T) {
	remove := func(path string, names ...string) error {
		for _, name := range names {
			if err := os.Remove(filepath.Join(filepath.Dir(path), name)); err != nil {
				return err
			}
		}
		return nil
	}
	ways := map[string]func(path string) error{
		"the file":        func(path string) error { return remove(path, "islet.db") },
		"the -wal":        func(path string) error { return remove(path, "islet.db-wal") },
		"the key":         func(path string) error { return remove(path, KeyFile) },
		"all":             func(path string) error { return remove(path, "islet.db", "islet.db-wal", KeyFile) },
		"the directory":   func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"moved":           func(path string) error { return os.Rename(path, path+".old") },
		"directory moved": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old") },
		"replaced": func(path string) error {
			if err := remove(path, "islet.db"); err != nil {
				return err
			}
			return os.WriteFile(path, []byte("another"), 0o600)
		},
	}
	for way, lose := range ways {
		for _, killed := range []bool{false, true} {
			t.Run(way+map[bool]string{true: ", killed"}[killed], func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				path := filepath.Join(t.TempDir(), "state", "islet.db")
				if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				s := open(t, path)
				secret := Object{ObjectKey{"Secret", "default", "wifi"}, "7", true, []byte("hush")}
				if err := s.UpdatePods(ctx, []Pod{pod("a", "web")}, nil); err != nil {
					t.Fatal(err)
				}
				if err := s.PutObject(ctx, secret); err != nil {
					t.Fatal(err)
				}
				if err := lose(path); err != nil {
					t.Fatal(err)
				}
				want := "a"
				if killed {
					want = "a b"
					if err := s.UpdatePods(ctx, []Pod{pod("b", "log")}, nil); err != nil {
						t.Fatal(err)
					}
					copied := filepath.Join(t.TempDir(), "copy")
					if err := os.CopyFS(copied, os.DirFS(filepath.Dir(path))); err != nil {
						t.Fatal(err)
					}
					path = filepath.Join(copied, "islet.db")
				} else if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				again := open(t, path)
				if aside, yes := again.Rebuilt(); yes {
					t.Errorf("the database was broken: %s", aside)
				}
				pods, err := again.Pods(ctx)
				var got []string
				for _, p := range pods {
					got = append(got, string(p.Pod.UID))
				}
				if err != nil || strings.Join(got, " ") != want {
					t.Errorf("pods %v, %v, want %q", got, err, want)
				}
				objects, err := again.Objects(ctx)
				if err != nil || len(objects) != 1 || string(objects[0].Data) != "hush" {
					t.Errorf("objects %v, %v", objects, err)
				}
				for _, name := range []string{"", "-wal"} {
					if fi, err := os.Lstat(path + name); err == nil && fi.Mode().Perm() != 0o600 {
						t.Errorf("%s has mode %v", path+name, fi.Mode())
					}
				}
			})
		}
	}
}

// TestRemovedAgain checks a database that is removed repeatedly. The store does not recreate the file each time. A database that was
// replaced earlier is kept.
func TestRemovedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	s := open(t, path)
	must(t, os.WriteFile(path+replacedSuffix, []byte("earlier"), 0o600))
	write := func(uid string) {
		t.Helper()
		for range 2 { // the writer checks the files after each write
			if err := s.UpdatePods(t.Context(), []Pod{pod(uid, uid)}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, found := range []bool{true, false} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write(string(rune('a' + i)))
		if exists(path) != found {
			t.Errorf("removal %d: the database exists: %v", i, !found)
		}
	}
	if err := s.PutStatus(types.UID("a"), &v1.PodStatus{Phase: v1.PodRunning}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || !exists(path) {
		t.Errorf("after Close: %v, the database exists: %v", err, exists(path))
	}
	if data, err := os.ReadFile(path + replacedSuffix); err != nil || string(data) != "earlier" {
		t.Errorf("the database that was replaced earlier: %q, %v", data, err)
	}
}

// TestRemovedForGood checks that the store continues in memory if its file was removed and cannot be recreated. Health reports this state.
// The write that finds out, and the writes before it, keep their effect: a new row, a changed row and a removed row.
func TestRemovedForGood(t *testing.T) {
	one, two := netip.MustParseAddr("10.42.0.1"), netip.MustParseAddr("10.42.0.2")
	for what, change := range map[string]func(context.Context, *Store) error{
		"new":     func(ctx context.Context, s *Store) error { return s.AddLease(ctx, two, "two") },
		"changed": func(ctx context.Context, s *Store) error { return s.SetMeta(ctx, "key", "new") },
		"removed": func(ctx context.Context, s *Store) error { return s.ReleaseLeases(ctx, "one") },
		"pod":     func(ctx context.Context, s *Store) error { return s.UpdatePods(ctx, []Pod{pod("b", "log")}, nil) },
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "islet.db")
			s, model := open(t, path), open(t, filepath.Join(t.TempDir(), "model.db"))
			for _, s := range []*Store{s, model} {
				must(t, s.UpdatePods(t.Context(), []Pod{pod("a", "web")}, nil))
				must(t, s.AddLease(t.Context(), one, "one"))
				must(t, s.SetMeta(t.Context(), "key", "old"))
			}
			must(t, os.Remove(path))
			must(t, os.Rename(path+"-wal", path+"-wal.old"))
			must(t, os.MkdirAll(filepath.Join(path+"-wal", "in the way"), 0o700))
			must(t, change(t.Context(), s))
			must(t, change(t.Context(), model))
			if s.Health().Volatile == "" {
				t.Fatalf("%+v", s.Health())
			}
			if now, want := rowsOf(t, s.db), rowsOf(t, model.db); !maps.Equal(now, want) {
				t.Errorf("rows %q, want %q", slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(want)))
			}
			select {
			case <-s.WatchRepairs():
			default:
				t.Error("nobody marks the new database as filled")
			}
		})
	}
}
