package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keyring"
)

// mirroredRows returns the rows of the tables of the mirror as text.
func mirroredRows(t testing.TB, db *sql.DB) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(rowsOf(t, db))), func(row string) bool {
		table, _, _ := strings.Cut(row, " ")
		return len(mirroredShapes(table)) == 0
	})
}

// writes returns calls of all methods that write to tables of the mirror.
func writes(ctx context.Context, s *Store) map[string]func() error {
	addr, key := netip.MustParseAddr("10.42.0.2"), VolumeKey{"v", "a", "/p"}
	pull := Pull{"sha256:1", "r.example/a", PullSource{keyring.Secret, "default", "pull", "uid", []byte("hash:32")}}
	row := Devices{"a", "c0", "example.com/serial", 1, []byte("{}")}
	claim := Claim{"uid-claim", "gpu.example.com", "default", "gpu", []byte("{}")}
	b := pod("b", "log")
	b.Lives = 2
	return map[string]func() error{
		"01 UpdatePods": func() error {
			s.AddMetaValue("with pods", func() string { return "1" })
			return s.UpdatePods(ctx, []Pod{pod("a", "web"), b}, nil)
		},
		"02 Reject":          func() error { return s.Reject(ctx, "a", Admission{"OutOfcpu", "too much", time.Second, true}) },
		"03 RemoveRejection": func() error { return s.RemoveRejection(ctx, "a") },
		"04 Reject again":    func() error { return s.Reject(ctx, "b", Admission{"OutOfcpu", "too much", time.Second, true}) },
		"05 Allocate": func() error {
			return s.Allocate(ctx, map[types.UID]Allocation{"b": {2, &v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}})
		},
		"06 PutCertificate":     func() error { return s.PutCertificate(ctx, Certificate{CertificateKey{"a", "v", 0}, []byte("{}")}) },
		"07 RemoveCertificates": func() error { return s.RemoveCertificates(ctx, "a") },
		"08 PutCertificate":     func() error { return s.PutCertificate(ctx, Certificate{CertificateKey{"b", "v", 0}, []byte("{}")}) },
		"09 AddImport":          func() error { return s.AddImport(ctx, "sha256:1", "a.tar") },
		"10 ForgetImports":      func() error { return s.ForgetImports(ctx) },
		"10b AddImport":         func() error { return s.AddImport(ctx, "sha256:3", "c.tar") },
		"10c ForgetArchives":    func() error { return s.ForgetArchives(ctx, "image:") },
		"11 AddImport":          func() error { return s.AddImport(ctx, "sha256:2", "b.tar") },
		"12 GiveDevices":        func() error { return s.GiveDevices(ctx, []Devices{row}) },
		"13 TakeDevices":        func() error { return s.TakeDevices(ctx, "a", row.Resource) },
		"14 GiveDevices":        func() error { row.UID = "b"; return s.GiveDevices(ctx, []Devices{row}) },
		"15 PutClaims":          func() error { return s.PutClaims(ctx, []Claim{claim}) },
		"16 RemoveClaims":       func() error { return s.RemoveClaims(ctx, []Claim{claim}) },
		"17 PutClaims":          func() error { claim.UID = "2"; return s.PutClaims(ctx, []Claim{claim}) },
		"18 AddLease":           func() error { return s.AddLease(ctx, addr, "one") },
		"19 ReleaseLeases":      func() error { return s.ReleaseLeases(ctx, "one") },
		"20 AddLease":           func() error { return s.AddLease(ctx, addr, "two") },
		"21 SetMeta":            func() error { return s.SetMeta(ctx, "key", "value") },
		"22 SetMetaOrRetry":     func() error { return s.SetMetaOrRetry(ctx, "key", "other") },
		"23 MarkFilled":         func() error { return s.MarkFilled(ctx) },
		"24 PutVolume":          func() error { return s.PutVolume(ctx, Volume{key, []byte("{}")}) },
		"25 RemoveVolume":       func() error { return s.RemoveVolume(ctx, key) },
		"26 PutVolume":          func() error { key.Path = "/q"; return s.PutVolume(ctx, Volume{key, []byte("{}")}) },
		"27 BeginPull":          func() error { return s.BeginPull(ctx, BegunPull{"r.example/a:1", "sha256:0"}) },
		"28 PutPull":            func() error { return s.PutPull(ctx, pull, "r.example/a:1") },
		"29 DeletePulls":        func() error { return s.DeletePulls(ctx, []string{"sha256:1"}) },
		"30 BeginPull":          func() error { return s.BeginPull(ctx, BegunPull{"r.example/b:1", ""}) },
		"31 EndPull":            func() error { return s.EndPull(ctx, "r.example/b:1") },
		"32 PutPull":            func() error { return s.PutPull(ctx, pull, "") },
		"33 PutToken": func() error {
			return s.PutToken(ctx, Token{TokenKey{"b", "vault", 600}, "ey", time.Unix(100, 0), time.Unix(700, 0)})
		},
		"34 UpdatePods, removed": func() error { return s.UpdatePods(ctx, nil, []types.UID{"b"}) },
	}
}

// TestMirrorFollowsEveryWrite checks after each write that the mirror has the rows of the database.
func TestMirrorFollowsEveryWrite(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	list := writes(t.Context(), s)
	var before []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		must(t, list[name]())
		copied := open(t, filepath.Join(t.TempDir(), "copy.db"))
		must(t, s.mirror.restore(t.Context(), copied.db))
		must(t, copied.MarkFilled(t.Context()))
		now, mirrored := mirroredRows(t, s.db), mirroredRows(t, copied.db)
		now = slices.DeleteFunc(now, func(row string) bool { return strings.Contains(row, emptyKey) })
		if !slices.Equal(now, mirrored) {
			t.Fatalf("%s: the mirror has %q, the database %q", name, mirrored, now)
		}
		if slices.Equal(now, before) && name[:2] != "23" {
			t.Errorf("%s: no row changed", name)
		}
		before = now
	}
}

// TestLostRowsReturn damages all pages of an open database. The store restores the rows of the mirror by itself, and the rows of the other
// tables by the functions of their owners. The next start of an agent that is killed before that finds out that rows are missing.
func TestLostRowsReturn(t *testing.T) {
	for _, last := range []string{"", "08 PutCertificate", "34 UpdatePods, removed"} { // the last write before the damage
		t.Run(last, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "islet.db")
			s := open(t, path)
			list := writes(t.Context(), s)
			for _, name := range slices.Sorted(maps.Keys(list)) {
				must(t, list[name]())
				if name == last {
					break
				}
			}
			must(t, s.MarkFilled(t.Context()))
			var calls []string
			for _, table := range []string{"objects", "local"} {
				s.AddRewriter(table, func(context.Context) error {
					calls = append(calls, table)
					return fmt.Errorf("%s: %w", table, errContent)
				})
			}
			before := mirroredRows(t, s.db)
			destroyPages(t, s)
			must(t, s.AddLease(t.Context(), netip.MustParseAddr("10.42.9.9"), "after")) // this write finds the damage
			_, err := s.Pods(t.Context())
			must(t, err)
			if h := s.Health(); h.Aside == "" || h.Volatile != "" || h.Salvaged != 0 {
				t.Fatalf("%+v", h)
			}
			if empty, err := s.IsNew(t.Context()); err != nil || !empty {
				t.Error("a next start would not find out that rows are missing:", err)
			}
			must(t, s.MarkFilled(t.Context()))
			must(t, s.ReleaseLeases(t.Context(), "after"))
			if now := mirroredRows(t, s.db); !slices.Equal(now, before) {
				t.Errorf("after the repair %q, before %q", now, before)
			}
			select {
			case <-s.WatchRepairs():
			default:
				t.Error("WatchRepairs has no value")
			}
			if err := s.RewriteRows(t.Context()); !errors.Is(err, errContent) || !slices.Equal(calls, []string{"objects", "local"}) {
				t.Error(calls, err)
			}
		})
	}
}

// TestFirstWriteAfterDamage checks each write of a row of a pod that finds out that the row of this pod is lost. It succeeds and stores the
// row, because nobody would store the row later.
func TestFirstWriteAfterDamage(t *testing.T) {
	resources := map[types.UID]Allocation{"a": {2, &v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}}
	for table, put := range map[string]func(ctx context.Context, s *Store) error{
		"devices": func(ctx context.Context, s *Store) error {
			return s.GiveDevices(ctx, []Devices{{"a", "c0", "example.com/serial", 1, []byte("{}")}})
		},
		"allocations": func(ctx context.Context, s *Store) error { return s.Allocate(ctx, resources) },
		"tokens": func(ctx context.Context, s *Store) error {
			return s.PutToken(ctx, Token{TokenKey{"a", "vault", 600}, "ey", time.Unix(100, 0), time.Unix(700, 0)})
		},
		"certificates": func(ctx context.Context, s *Store) error {
			return s.PutCertificate(ctx, Certificate{CertificateKey{"a", "v", 0}, []byte("{}")})
		},
		"admissions": func(ctx context.Context, s *Store) error { return s.Reject(ctx, "a", Admission{Reason: "OutOfcpu"}) },
	} {
		t.Run(table, func(t *testing.T) {
			s := open(t, filepath.Join(t.TempDir(), "islet.db"))
			must(t, s.UpdatePods(t.Context(), []Pod{pod("a", "web")}, nil))
			must(t, s.MarkFilled(t.Context()))
			destroyPages(t, s)
			must(t, put(t.Context(), s))
			if h := s.Health(); h.Aside == "" || h.Volatile != "" {
				t.Fatalf("%+v", h)
			}
			rows := slices.DeleteFunc(mirroredRows(t, s.db), func(row string) bool { return !strings.HasPrefix(row, table+" ") })
			if len(rows) != 1 {
				t.Errorf("rows %q", rows)
			}
		})
	}
}

// destroyPages overwrites all pages of an open database, except a part of the first one.
func destroyPages(t testing.TB, s *Store) {
	t.Helper()
	_, err := s.db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	must(t, errors.Join(err, open1(t, s)))
	f, err := os.OpenFile(s.path, os.O_WRONLY, 0)
	must(t, err)
	fi, err := f.Stat()
	must(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(fi.Size())-pageSize), pageSize)
	must(t, errors.Join(err, f.Close()))
}

// TestStaleMirror checks that a row that was written after the last read of its table survives, although the mirror does not have it.
func TestStaleMirror(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	must(t, s.AddLease(t.Context(), netip.MustParseAddr("10.42.0.1"), "one"))
	m := s.mirror
	other := open(t, filepath.Join(t.TempDir(), "other.db"))
	must(t, other.AddLease(t.Context(), netip.MustParseAddr("10.42.0.2"), "two"))
	m.stale = map[string]bool{"leases": true}
	must(t, m.restore(t.Context(), other.db))
	if leases, err := other.Leases(t.Context()); err != nil || len(leases) != 2 {
		t.Error(leases, err)
	}
}
