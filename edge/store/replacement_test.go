package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/disktest"
)

// breakDatabase writes a database with rows in all tables to a path. One page is damaged, and one row is only in the -wal file. It returns
// the rows that can be read.
func breakDatabase(t testing.TB, path string) map[string]bool {
	t.Helper()
	db, wal := furnished(t)
	db = checkpointed(t, db, wal)
	must(t, os.WriteFile(path, db, 0o600))
	s := open(t, path)
	must(t, s.SetMeta(t.Context(), "last", "only in the -wal file"))
	wal, err := os.ReadFile(path + "-wal")
	must(t, err)
	must(t, s.Close())
	root := pageOf(t, db, "pods")
	clear(db[(root-1)*pageSize : root*pageSize])
	must(t, os.WriteFile(path, db, 0o600))
	must(t, os.WriteFile(path+"-wal", wal, 0o600))
	model := open(t, filepath.Join(t.TempDir(), "model.db"))
	_, err = salvageRows(t.Context(), path, model.db)
	must(t, err)
	rows := rowsOf(t, model.db)
	if !rows[`meta ["last" "only in the -wal file"]`] {
		t.Fatal("no row is only in the -wal file")
	}
	return rows
}

// copyFiles copies the files of a database to a new directory.
func copyFiles(t testing.TB, from string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "islet.db")
	for _, suffix := range suffixes[:2] {
		data, err := os.ReadFile(from + suffix)
		must(t, err)
		must(t, os.WriteFile(path+suffix, data, 0o600))
	}
	return path
}

// stopped returns a store whose process ends before its writer starts.
func stopped(path string) *Store {
	return &Store{path: path, log: slog.New(slog.DiscardHandler), seal: &seal{}}
}

// hasRows checks that a start finds the given rows in the database at a path, and leaves no file of an interrupted replacement.
func hasRows(t testing.TB, path string, want map[string]bool) *Store {
	t.Helper()
	s := open(t, path)
	if lost := without(want, rowsOf(t, s.db)); len(lost) > 0 {
		t.Errorf("%d of %d rows are lost, such as %q", len(lost), len(want), lost[0])
	}
	if h := s.Health(); h.Volatile != "" {
		t.Errorf("%+v", h)
	}
	for _, suffix := range []string{newSuffix, nextSuffix} {
		if left := listFiles(path + suffix); len(left) > 0 {
			t.Error("left:", left)
		}
	}
	return s
}

// TestReplacementIsInterrupted ends the process after each step of the replacement of a broken database. The next start has all readable
// rows, and knows that others are missing. A second end of the process after each step of that start does not change this.
func TestReplacementIsInterrupted(t *testing.T) {
	from := filepath.Join(t.TempDir(), "islet.db")
	want := breakDatabase(t, from)
	steps := len((&replacement{}).steps())
	for first := range steps + 1 {
		for second := range steps {
			if second > 0 && first%steps == 0 {
				continue // there is nothing to continue
			}
			t.Run(fmt.Sprint(first, " ", second), func(t *testing.T) {
				path := copyFiles(t, from)
				s := stopped(path)
				if err := s.open(t.Context()); !isBroken(err) {
					t.Fatal("not broken:", err)
				}
				_, err := s.buildDatabase(t.Context())
				must(t, err)
				r := &replacement{path: path, kept: corruptName(path)}
				for _, step := range r.steps()[:first] {
					must(t, step())
				}
				if next, _ := findNext(path); next != "" { // as in continueReplacement
					again := &replacement{path: path, next: next, kept: keptName(path)}
					if again.kept == "" {
						again.kept = corruptName(path)
					}
					for _, step := range again.steps()[1:][:second] {
						must(t, step())
					}
				}
				s = hasRows(t, path, want)
				if _, rebuilt := s.Rebuilt(); !rebuilt && first < steps && second < steps-1 {
					t.Error("the start does not know that the database was broken")
				}
				if empty, err := s.IsNew(t.Context()); err != nil || !empty {
					t.Error("the start does not know that rows are missing:", err)
				}
				kept, err := filepath.Glob(path + corruptSuffix + "*Z")
				if err != nil || len(kept) != 1 {
					t.Errorf("the broken database is kept as %q, %v", kept, err)
				}
				must(t, s.Close())
				hasRows(t, path, want)
			})
		}
	}
}

// TestReplacementIsKilled kills a process with SIGKILL at random times while it opens a broken database, until it has interrupted a number
// of replacements.
func TestReplacementIsKilled(t *testing.T) {
	from := filepath.Join(t.TempDir(), "islet.db")
	want := breakDatabase(t, from)
	limit := time.Hour
	for range 3 { // the shortest time, because a busy machine may delay a process
		limit = min(limit, killOpening(t, copyFiles(t, from), time.Hour))
	}
	interrupted := 0
	for round := 0; interrupted < 5; round++ {
		if round == 300 {
			t.Fatalf("only %d of %d processes were killed during a replacement", interrupted, round)
		}
		path := copyFiles(t, from)
		for range 2 {
			killOpening(t, path, rand.N(limit))
			if next, _ := findNext(path); next != "" || exists(path+newSuffix) {
				interrupted++
			}
		}
		must(t, hasRows(t, path, want).Close())
	}
}

// TestReplacementOnAFullDisk opens a broken database on a full disk. The rows are in memory, and the database stays in its place until
// there is space. It also ends the process when the new database was complete.
func TestReplacementOnAFullDisk(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprint(interrupted), func(t *testing.T) {
			d := disktest.New(t)
			path := filepath.Join(d.Dir, "islet.db")
			want := breakDatabase(t, path)
			if interrupted {
				s := stopped(path)
				_, err := s.buildDatabase(t.Context())
				must(t, err)
				must(t, (&replacement{path: path}).finish())
			}
			d.Fill()
			if interrupted {
				s := hasRows(t, path, want) // the names of files need no space on this disk
				must(t, s.Close())
				return
			}
			s := open(t, path)
			if lost := without(want, rowsOf(t, s.db)); len(lost) > 0 || s.Health().Volatile == "" {
				t.Errorf("%d rows are lost, %+v", len(lost), s.Health())
			}
			if _, rebuilt := s.Rebuilt(); !rebuilt {
				t.Error("the start does not know that the database was broken")
			}
			must(t, s.Close())
			if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 || !exists(path) {
				t.Errorf("files %q, %v", left, err)
			}
			d.Free()
			hasRows(t, path, want)
		})
	}
}

// TestReplacementOnANearlyFullDisk opens a broken database on disks with little free space. At each size, all readable rows are there, and
// they are still there when the disk has space again. The test includes sizes at which the rows fit only into the -wal file of the new
// database.
func TestReplacementOnANearlyFullDisk(t *testing.T) {
	d := disktest.New(t)
	from := filepath.Join(t.TempDir(), "islet.db")
	want := breakDatabase(t, from)
	fi, err := os.Stat(from)
	must(t, err)
	replaced := map[bool]int{}
	for free := int64(0); free <= 3*fi.Size(); free += 16 * pageSize {
		path := filepath.Join(d.Dir, "islet.db")
		for _, suffix := range suffixes[:2] {
			data, err := os.ReadFile(from + suffix)
			must(t, err)
			must(t, os.WriteFile(path+suffix, data, 0o600))
		}
		d.Fill()
		d.Shrink(free)
		s := open(t, path)
		if lost := without(want, rowsOf(t, s.db)); len(lost) > 0 {
			t.Errorf("%d bytes free: %d rows are lost", free, len(lost))
		}
		aside, rebuilt := s.Rebuilt()
		if !rebuilt || !exists(aside) {
			t.Errorf("%d bytes free: the broken database is %q", free, aside)
		}
		replaced[s.Health().Volatile == ""]++
		must(t, s.Close())
		d.Free()
		must(t, hasRows(t, path, want).Close())
		names, err := filepath.Glob(path + "*")
		must(t, err)
		for _, name := range names {
			must(t, os.Remove(name))
		}
	}
	if replaced[true] == 0 || replaced[false] == 0 {
		t.Error("the sizes do not include both cases:", replaced)
	}
}

// TestRecreationIsInterrupted ends the process after each step of the creation of a removed or replaced database.
func TestRecreationIsInterrupted(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		for first := 1; first <= len((&replacement{}).steps()); first++ {
			t.Run(fmt.Sprint(replaced, first), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "islet.db")
				filled(t, path, 20, true)
				s := open(t, path)
				want := rowsOf(t, s.db)
				must(t, s.Close())
				must(t, os.Rename(path, path+newSuffix)) // as VACUUM INTO creates it
				if replaced {
					must(t, os.WriteFile(path, []byte("another"), 0o600))
					must(t, os.WriteFile(path+"-wal", []byte("another"), 0o600))
				}
				r := &replacement{path: path, kept: path + replacedSuffix}
				for _, step := range r.steps()[:first] {
					must(t, step())
				}
				s = hasRows(t, path, want)
				if empty, err := s.IsNew(t.Context()); err != nil {
					t.Error(empty, err)
				}
				names, err := filepath.Glob(path + ".*")
				if kept := len(slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, "-wal") })); err != nil ||
					(kept == 1) != replaced {
					t.Errorf("files %q, %v", names, err)
				}
			})
		}
	}
}

// TestOutdatedReplacement checks that a complete new database is not used, but kept, if another program has put a newer database in
// the place of the old one: an older islet, which does not know the new file, or a restored backup.
func TestOutdatedReplacement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	want := breakDatabase(t, path)
	_, err := stopped(path).buildDatabase(t.Context())
	must(t, err)
	must(t, (&replacement{path: path}).finish())
	must(t, os.Rename(path, path+".other"))
	must(t, os.Remove(path+"-wal"))
	filled(t, filepath.Join(t.TempDir(), "other.db"), 3, true)
	other := filepath.Join(t.TempDir(), "islet.db")
	filled(t, other, 3, true)
	must(t, os.Rename(other, path))
	s := hasRows(t, path, nil)
	if pods, err := s.Pods(t.Context()); err != nil || len(pods) != 3 {
		t.Errorf("%d pods, %v", len(pods), err)
	}
	kept, err := filepath.Glob(path + corruptSuffix + "*")
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	hasRows(t, kept[0], want)
}

// TestNameOfTheDirectory continues a replacement in directories whose names have characters of a pattern. The kept files of old databases
// are found there too, and only the newest ones are kept.
func TestNameOfTheDirectory(t *testing.T) {
	from := filepath.Join(t.TempDir(), "islet.db")
	want := breakDatabase(t, from)
	for _, name := range []string{"[a]", "*", "?", "[", `\`} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			must(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, "islet.db")
			must(t, os.Rename(copyFiles(t, from), path))
			must(t, os.Link(from+"-wal", path+"-wal"))
			for i := range keepBroken + 1 {
				must(t, os.WriteFile(fmt.Sprint(path, corruptSuffix, i), nil, 0o600))
			}
			_, err := stopped(path).buildDatabase(t.Context())
			must(t, err)
			r := &replacement{path: path, kept: corruptName(path)}
			for _, step := range r.steps()[:3] {
				must(t, step())
			}
			must(t, hasRows(t, path, want).Close())
			files, err := os.ReadDir(dir)
			must(t, err)
			names := map[string]bool{}
			for _, f := range files {
				base, _ := strings.CutSuffix(f.Name(), "-wal")
				names[base] = true
			}
			if len(names) != 1+keepBroken || !names[filepath.Base(r.kept)] {
				t.Errorf("files %q", slices.Sorted(maps.Keys(names)))
			}
		})
	}
}

// TestNoEmptyFileIsLeft checks that a store that cannot create a database leaves no empty file, which would look like one.
func TestNoEmptyFileIsLeft(t *testing.T) {
	d := disktest.New(t)
	d.Fill()
	path := filepath.Join(d.Dir, "islet.db")
	s := open(t, path)
	if s.Health().Volatile == "" {
		t.Error("a full disk takes a new database")
	}
	for _, when := range []string{"the start", "a write", "the end"} {
		switch when {
		case "a write":
			must(t, s.UpdatePods(t.Context(), []Pod{pod("a", "a")}, nil))
		case "the end":
			must(t, s.Close())
		}
		if left := listFiles(path); len(left) > 0 {
			t.Errorf("after %s, %q are left", when, left)
		}
	}
}

// This environment variable makes the test program open a database until it is killed.
const openingEnv = "ISLET_STORE_TEST_OPENING"

// openingChild opens a database. It reports the begin and the end of that on its standard output.
func openingChild(path string) {
	fmt.Println("opening")
	_, err := Open(context.Background(), path, slog.New(slog.DiscardHandler))
	fmt.Println("opened", err)
	select {}
}

// killOpening starts a process that opens a database. It kills the process after the given time, or when the database is open. It returns
// the time that the process had, without its start.
func killOpening(t *testing.T, path string, after time.Duration) time.Duration {
	t.Helper()
	lines, kill, wait := startChild(t, openingEnv, path)
	defer wait()
	defer kill()
	if !lines.Scan() {
		t.Fatal("the process has not begun:", lines.Err())
	}
	timer := time.AfterFunc(after, kill)
	defer timer.Stop()
	begin := time.Now()
	lines.Scan()
	return time.Since(begin)
}
