package store

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.path)
}

func pod(uid, name string) Pod {
	return Pod{
		Pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: name}},
		Seq:    int64(uid[0]),
		Source: "file",
		Origin: "/etc/" + name + ".yaml",
	}
}

func TestEveryTableSurvivesReopening(t *testing.T) {
	ctx := t.Context()
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	if _, yes := s.Rebuilt(); yes {
		t.Error("a new database is not a rebuilt one")
	}
	must(t, s.MarkFilled(ctx))
	a, b := pod("a", "web"), pod("b", "log")
	b.Deleting, b.Grace, b.Again, b.Lives = true, 3*time.Second, true, 2
	status := &v1.PodStatus{Phase: v1.PodSucceeded}
	secret := Object{ObjectKey{"Secret", "default", "wifi"}, "7", true, []byte("hush")}
	token := Token{TokenKey{"a", "vault", 600}, "ey", time.Unix(100, 0), time.Unix(700, 0)}
	addr := netip.MustParseAddr("10.42.0.2")
	for _, err := range []error{
		s.UpdatePods(ctx, []Pod{b, a}, nil),
		s.AddLease(ctx, addr, "sandbox"),
		s.AddLease(ctx, addr, "sandbox"),
		s.Reject(ctx, "a", Admission{"OutOfcpu", "too much", time.Second, true}),
		s.AddImport(ctx, "sha256:1", "web.tar"),
		s.PutStatus("a", status),
		s.SetMeta(ctx, "key", "value"),
		s.PutObject(ctx, Object{ObjectKey: secret.ObjectKey, Version: "6", Data: []byte("old")}),
		s.PutObject(ctx, secret),
		s.PutToken(ctx, token),
		s.PutToken(ctx, Token{TokenKey: TokenKey{UID: "nobody"}, Token: "of no pod"}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := s.AddLease(ctx, addr, "other"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a taken address: %v", err)
	}
	s = reopen(t, s)
	pods, err := s.Pods(ctx)
	if diff := cmp.Diff([]Pod{a, b}, pods); err != nil || diff != "" {
		t.Error(err, diff)
	}
	leases, err := s.Leases(ctx)
	if diff := cmp.Diff(map[netip.Addr]string{addr: "sandbox"}, leases,
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Error(err, diff)
	}
	rejected, err := s.Rejections(ctx)
	if diff := cmp.Diff(map[types.UID]Admission{"a": {"OutOfcpu", "too much", time.Second, true}}, rejected); err != nil || diff != "" {
		t.Error(err, diff)
	}
	statuses, err := s.Statuses(ctx)
	if diff := cmp.Diff(map[types.UID]*v1.PodStatus{"a": status}, statuses); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if yes, err := s.WasImported(ctx, "sha256:1"); err != nil || !yes {
		t.Error(yes, err)
	}
	if yes, err := s.WasImported(ctx, "sha256:2"); err != nil || yes {
		t.Error(yes, err)
	}
	if v, found, err := s.Meta(ctx, "key"); err != nil || !found || v != "value" {
		t.Error(v, found, err)
	}
	objects, err := s.Objects(ctx)
	if diff := cmp.Diff([]Object{secret}, objects); err != nil || diff != "" {
		t.Error(err, diff)
	}
	tokens, err := s.Tokens(ctx)
	if diff := cmp.Diff([]Token{token}, tokens); err != nil || diff != "" {
		t.Error(err, diff)
	}

	// When a pod is removed, its rows are removed too.
	if err := errors.Join(s.UpdatePods(ctx, nil, []types.UID{"a"}), s.ReleaseLeases(ctx, "sandbox"),
		s.RemoveObjects(ctx, secret.ObjectKey)); err != nil {
		t.Fatal(err)
	}
	pods, _ = s.Pods(ctx)
	leases, _ = s.Leases(ctx)
	rejected, _ = s.Rejections(ctx)
	statuses, _ = s.Statuses(ctx)
	objects, _ = s.Objects(ctx)
	tokens, _ = s.Tokens(ctx)
	if len(pods) != 1 || len(leases)+len(rejected)+len(statuses)+len(objects)+len(tokens) != 0 {
		t.Error(pods, leases, rejected, statuses, objects, tokens)
	}
}
