package store

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/keyring"
)

// filled creates a database with n pods. If the parameter properly is false, the files are as after a power failure: the last changes are
// only in the -wal file.
func filled(t testing.TB, path string, n int, properly bool) {
	t.Helper()
	s := open(t, path)
	for i := range n {
		p := typical(fmt.Sprintf("%032d", i))
		p.Seq = int64(i)
		if err := s.UpdatePods(t.Context(), []Pod{p}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if properly {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.WriteFile(path+suffix, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func execute(t testing.TB, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer db.Close()
	_, err = db.Exec(script)
	must(t, err)
}

// works checks that a store can write and read rows.
func works(t testing.TB, s *Store) {
	t.Helper()
	must(t, s.UpdatePods(t.Context(), []Pod{pod("z", "z")}, nil))
	pods, err := s.Pods(t.Context())
	if err != nil || !slices.ContainsFunc(pods, func(p Pod) bool { return p.Pod.UID == "z" }) {
		t.Error("a row that was written is not there", err)
	}
	if _, err := s.Leases(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBrokenFilesAreSetAside(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"text":         func(t *testing.T, p string) { must(t, os.WriteFile(p, []byte(strings.Repeat("text ", 500)), 0o600)) },
		"short text":   func(t *testing.T, p string) { must(t, os.WriteFile(p, []byte("text"), 0o600)) },
		"half a file":  func(t *testing.T, p string) { must(t, os.Truncate(p, 9*1024)) },
		"odd length":   func(t *testing.T, p string) { must(t, os.Truncate(p, 9*1024+11)) },
		"zeros":        func(t *testing.T, p string) { must(t, os.WriteFile(p, make([]byte, 8192), 0o600)) },
		"a directory":  func(t *testing.T, p string) { must(t, os.Remove(p)); must(t, os.MkdirAll(p+"/sub", 0o755)) },
		"a named pipe": func(t *testing.T, p string) { must(t, os.Remove(p)); must(t, syscall.Mkfifo(p, 0o600)) },
		"a loose link": func(t *testing.T, p string) { must(t, os.Remove(p)); must(t, os.Symlink("nowhere", p)) },
		"a link":       func(t *testing.T, p string) { must(t, os.Remove(p)); must(t, os.Symlink("/etc/hostname", p)) },
		"wal a directory": func(t *testing.T, p string) {
			must(t, os.MkdirAll(p+"-wal/sub", 0o755))
		},
		"a wrong version":     func(t *testing.T, p string) { execute(t, p, "PRAGMA user_version = 1000") },
		"another program's":   func(t *testing.T, p string) { execute(t, p, "PRAGMA application_id = 7") },
		"a table in the way":  func(t *testing.T, p string) { must(t, os.Remove(p)); execute(t, p, "CREATE TABLE pods (x)") },
		"a table that is out": func(t *testing.T, p string) { execute(t, p, "DROP TABLE leases") },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "islet.db")
			filled(t, path, 20, true)
			damage(t, path)
			var log bytes.Buffer
			s, err := Open(t.Context(), path, slog.New(slog.NewTextHandler(&log, nil)))
			must(t, err)
			defer s.Close()
			aside, yes := s.Rebuilt()
			if _, err := os.Lstat(aside); !yes || err != nil {
				t.Error("the broken file is gone:", aside, err)
			}
			if !strings.HasPrefix(aside, path+".corrupt-") {
				t.Error("set aside as", aside)
			}
			if got := log.String(); !strings.Contains(got, aside) || !strings.Contains(got, "level=ERROR") {
				t.Error("the log does not contain it:", got)
			}
			works(t, s)
			s = reopen(t, s)
			if _, again := s.Rebuilt(); again {
				t.Error("rebuilt twice")
			}
			works(t, s)
		})
	}
}

func TestUnreadableFileIsSetAside(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to change the user")
	}
	runtime.LockOSThread() // the thread is never unlocked, so it ends with the test
	dir, err := os.MkdirTemp("", "store")
	must(t, err)
	defer os.RemoveAll(dir)
	const nobody = 65534
	path := filepath.Join(dir, "islet.db")
	must(t, os.WriteFile(path, []byte("secret"), 0o600))
	must(t, os.Chown(dir, nobody, nobody))
	must(t, syscall.Setfsuid(nobody))
	defer syscall.Setfsuid(0)
	s, err := Open(t.Context(), path, slog.New(slog.DiscardHandler))
	must(t, err)
	if _, yes := s.Rebuilt(); !yes {
		t.Error("not rebuilt")
	}
	must(t, s.Close())
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	filled(t, path, 3, false)
	must(t, os.Chmod(path, 0o666))
	must(t, os.Chmod(path+"-wal", 0o644))
	s := open(t, path)
	works(t, s)
	if _, yes := s.Rebuilt(); yes {
		t.Error("loose permissions counted as a damaged file")
	}
	for _, suffix := range suffixes[:2] {
		fi, err := os.Stat(path + suffix)
		if err != nil || fi.Mode().Perm() != 0o600 {
			t.Error(suffix, err, fi)
		}
	}
}

// TestRandomDamage checks that a damaged database can be opened and used. The damage is that of a power failure, a faulty card or a user.
// If rows are lost, the store reports where it has moved the damaged file.
func TestRandomDamage(t *testing.T) {
	clean, dirty := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	filled(t, clean, 30, true)
	filled(t, dirty, 30, false)
	rounds := 60
	if testing.Short() {
		rounds = 30
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "islet.db")
		from := []string{clean, dirty}[r.IntN(2)]
		for _, suffix := range suffixes[:2] {
			data, err := os.ReadFile(from + suffix)
			if os.IsNotExist(err) {
				continue
			}
			must(t, err)
			if r.IntN(2) == 0 || suffix == "" && from == clean {
				data = damaged(r, data)
			}
			must(t, os.WriteFile(path+suffix, data, 0o600))
		}
		s, err := Open(context.Background(), path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		works(t, s)
		if err := s.Close(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func damaged(r *rand.Rand, data []byte) []byte {
	at := r.IntN(len(data))
	switch r.IntN(4) {
	case 0:
		return data[:at]
	case 1: // zeros a block
		clear(data[at:min(len(data), at+1+r.IntN(8192))])
	case 2: // copies a block from another place
		copy(data[at:], data[:r.IntN(min(len(data), 8192))])
	default:
		for range 1 + r.IntN(50) {
			data[r.IntN(len(data))] ^= 1 << r.IntN(8)
		}
	}
	return data
}

func TestOnlyTheLastBrokenFilesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	for range 3 * keepBroken {
		must(t, os.WriteFile(path, []byte("not a database at all"), 0o600))
		must(t, os.WriteFile(path+"-wal", nil, 0o600))
		s := open(t, path)
		aside, _ := s.Rebuilt()
		must(t, s.Close())
		if _, err := os.Stat(aside); err != nil {
			t.Error("the newest file was removed:", err)
		}
	}
	kept, err := filepath.Glob(path + ".corrupt-*Z*")
	must(t, err)
	if kept = slices.DeleteFunc(kept, func(p string) bool { return strings.HasSuffix(p, "-wal") }); len(kept) != keepBroken {
		t.Error(kept)
	}
}

// TestOldDatabasesAreMigrated checks that the database of each released version can be opened and keeps its rows. After the migration its
// schema must be the same as that of a new database.
func TestOldDatabasesAreMigrated(t *testing.T) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	must(t, err)
	for version := range files {
		t.Run(fmt.Sprint("version ", version+1), func(t *testing.T) {
			script, err := os.ReadFile(fmt.Sprintf("testdata/v%d.sql", version+1))
			must(t, err)
			path := filepath.Join(t.TempDir(), "islet.db")
			execute(t, path, string(script))
			must(t, os.WriteFile(filepath.Join(filepath.Dir(path), KeyFile), []byte(strings.Repeat("k", keyfile.Size)), 0o600))
			s := open(t, path)
			if _, yes := s.Rebuilt(); yes {
				t.Fatal("rebuilt")
			}
			if version+1 >= 2 {
				sealedRowsOfOldDatabase(t, s)
			}
			if events, err := s.Events(t.Context()); err != nil || version+1 >= 3 &&
				(len(events) != 1 || events[0].Event.Name != "e" || events[0].Told != 1) {
				t.Error(events, err)
			}
			if version+1 >= 4 {
				pullsOfOldDatabase(t, s)
			}
			if given, err := s.Allocations(t.Context()); err != nil || version+1 >= 5 &&
				(given["uid-web"].Generation != 2 || given["uid-web"].Resources.Containers[0].Name != "c") {
				t.Error(given, err)
			}
			if mounted, err := s.Volumes(t.Context()); err != nil || version+1 >= 6 && (len(mounted) != 1 || mounted[0].Pod != "uid-web") {
				t.Error(mounted, err)
			}
			if version+1 >= 7 {
				devicesOfOldDatabase(t, s)
			}
			if local, err := s.Locals(t.Context()); err != nil || version+1 >= 8 &&
				(len(local) != 1 || string(local[0].Data) != "hush" || !local[0].Gone) {
				t.Error(local, err)
			}
			if certs, err := s.Certificates(t.Context()); err != nil || version+1 >= 9 &&
				(len(certs) != 1 || certs[0].Source != 1 || string(certs[0].State) != "{}") {
				t.Error(certs, err)
			}
			if refused, err := s.Rejections(t.Context()); err != nil || version+1 >= 11 &&
				(refused["uid-web"] != Admission{"OutOfcpu", "Node has no room", time.Second, true}) {
				t.Error(refused, err)
			}
			pods, err := s.Pods(t.Context())
			if version+1 >= 10 && (len(pods) != 2 || pods[0].Pod.UID != "uid-web" || pods[0].Lives != 3 || pods[1].Lives != 0) {
				t.Error("the number of restarts of a pod was lost")
			}
			if err != nil || len(pods) != 2 || pods[1].Pod.Name != "log" || !pods[1].Deleting {
				t.Error(pods, err)
			}
			leases, err := s.Leases(t.Context())
			if err != nil || len(leases) != 2 {
				t.Error(leases, err)
			}
			works(t, s)
		})
	}
}

func devicesOfOldDatabase(t *testing.T, s *Store) {
	t.Helper()
	devices, err := s.Devices(t.Context())
	if diff := cmp.Diff([]Devices{{"uid-web", "c0", "example.com/serial", 1, []byte("{}")}}, devices); err != nil || diff != "" {
		t.Error(err, diff)
	}
	claims, err := s.Claims(t.Context())
	if diff := cmp.Diff([]Claim{{"uid-claim", "gpu.example.com", "default", "gpu", []byte("{}")}}, claims); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func sealedRowsOfOldDatabase(t *testing.T, s *Store) {
	t.Helper()
	objects, err := s.Objects(t.Context())
	want := Object{ObjectKey{"Secret", "default", "wifi"}, "7", true, []byte("hush")}
	if diff := cmp.Diff([]Object{want}, objects); err != nil || diff != "" {
		t.Error(err, diff)
	}
	tokens, err := s.Tokens(t.Context())
	if err != nil || len(tokens) != 1 || tokens[0].Token != "ey.token" || tokens[0].Expires.Unix() != 4607 {
		t.Error(tokens, err)
	}
}

func pullsOfOldDatabase(t *testing.T, s *Store) {
	t.Helper()
	pulls, err := s.PullsOf(t.Context(), "sha256:01")
	want := []Pull{{"sha256:01", "registry.example/app", PullSource{keyring.Secret, "default", "pull", "uid-pull", []byte("hash:32")}}}
	if diff := cmp.Diff(want, pulls); err != nil || diff != "" {
		t.Error(err, diff)
	}
	begun, err := s.BegunPulls(t.Context())
	if diff := cmp.Diff([]BegunPull{{"registry.example/app:2", "sha256:01"}}, begun); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	path, tried := filepath.Join(t.TempDir(), "islet.db"), false
	acknowledged(t, path, time.Hour, func(_, _ string) bool {
		if tried {
			return true
		}
		tried = true
		if _, err := Open(t.Context(), path, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), "another process") {
			t.Error("two processes have it open:", err)
		}
		return true
	})
	works(t, open(t, path))
}
