package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keyring"
)

func secretOf(name, hash string) PullSource {
	return PullSource{Kind: keyring.Secret, Namespace: "default", Name: name, UID: "uid", Hash: []byte(hash)}
}

func TestPulls(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	ctx := t.Context()
	of := func(id string, want ...Pull) {
		t.Helper()
		got, err := s.PullsOf(ctx, id)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	begun := func(want ...BegunPull) {
		t.Helper()
		got, err := s.BegunPulls(ctx)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	must(t, s.BeginPull(ctx, BegunPull{"reg/app:1", ""}))
	must(t, s.BeginPull(ctx, BegunPull{"reg/app:1", "id0"}))
	must(t, s.BeginPull(ctx, BegunPull{"reg/app:2", ""}))
	of("")
	s = reopen(t, s)
	begun(BegunPull{"reg/app:1", "id0"}, BegunPull{"reg/app:2", ""})
	must(t, s.EndPull(ctx, "reg/app:2"))
	must(t, s.PutPull(ctx, Pull{"id1", "reg/app", secretOf("a", "old")}, "reg/app:1"))
	begun()
	must(t, s.PutPull(ctx, Pull{"id1", "reg/app", secretOf("b", "b")}, ""))
	must(t, s.PutPull(ctx, Pull{"id1", "reg/app", secretOf("a", "new")}, ""))
	must(t, s.PutPull(ctx, Pull{"id1", "other/app", secretOf("a", "new")}, ""))
	must(t, s.PutPull(ctx, Pull{Image: "id2"}, ""))
	s = reopen(t, s)
	other := Pull{"id1", "other/app", secretOf("a", "new")}
	of("id1", other, Pull{"id1", "reg/app", secretOf("a", "new")}, Pull{"id1", "reg/app", secretOf("b", "b")})
	of("id2", Pull{Image: "id2"})
	account := Pull{"id3", "reg/app", PullSource{Kind: keyring.ServiceAccount, Namespace: "default", Name: "a", UID: "uid2"}}
	must(t, s.PutPull(ctx, Pull{"id3", "reg/app", secretOf("a", "a")}, ""))
	must(t, s.PutPull(ctx, account, ""))
	of("id3", account, Pull{"id3", "reg/app", secretOf("a", "a")})
	must(t, s.DeletePulls(ctx, []string{"id3"}))
	everyone := Pull{"id1", "reg/app", PullSource{}}
	must(t, s.PutPull(ctx, everyone, ""))
	must(t, s.PutPull(ctx, Pull{"id1", "reg/app", secretOf("c", "c")}, ""))
	of("id1", other, everyone)
	must(t, s.BeginPull(ctx, BegunPull{"reg/app:3", ""}))
	if ids, err := s.PulledImages(ctx); err != nil || fmt.Sprint(ids) != "[id1 id2]" {
		t.Error(ids, err)
	}
	must(t, s.DeletePulls(ctx, []string{"id1", "", "none"}))
	of("id1")
	begun(BegunPull{"reg/app:3", ""})
}

// TestPullsAreBounded checks that the records of an image that stays for years are bounded, if its Secret or service account is created
// again and again, or if there is always another namespace with one.
func TestPullsAreBounded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	put := func(name string, source PullSource, want int) {
		t.Helper()
		must(t, s.PutPull(t.Context(), Pull{"id1", name, source}, ""))
		got, err := s.PullsOf(t.Context(), "id1")
		must(t, err)
		n, found := 0, false
		for _, p := range got {
			if p.Name == name {
				n++
			}
			found = found || cmp.Equal(p, Pull{"id1", name, source})
		}
		if n != want || !found {
			t.Fatalf("%d records of %s, want %d; that of %+v: %t", n, name, want, source, found)
		}
	}
	for i := range 5 {
		uid := types.UID(fmt.Sprint("uid", i))
		put("reg/app", PullSource{Kind: keyring.Secret, Namespace: "default", Name: "a", UID: uid, Hash: []byte{byte(i)}}, []int{1, 3}[min(i, 1)])
		put("reg/app", PullSource{Kind: keyring.ServiceAccount, Namespace: "default", Name: "a", UID: uid}, []int{2, 3}[min(i, 1)])
		put("reg/app", PullSource{Kind: keyring.Secret, Namespace: "other", Name: "a", UID: uid, Hash: []byte{byte(i)}}, 3)
	}
	for i := range maxPullSources + 20 {
		put("reg/jobs", PullSource{Kind: keyring.Secret, Namespace: fmt.Sprint("job", i), Name: "a", UID: "uid", Hash: []byte("hash")},
			min(i+1, maxPullSources))
	}
	put("reg/app", secretOf("b", "b"), 4)
}

// TestUnchangedPullsAreNotWritten checks that a row is not written again if it has not changed. This reduces the wear of flash memory.
func TestUnchangedPullsAreNotWritten(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	again := func() {
		must(t, s.BeginPull(t.Context(), BegunPull{"reg/app:2", "id1"}))
		must(t, s.PutPull(t.Context(), Pull{"id1", "reg/app", secretOf("a", "a")}, ""))
		must(t, s.PutPull(t.Context(), Pull{"id1", "reg/open", PullSource{}}, ""))
		must(t, s.PutPull(t.Context(), Pull{Image: "id2"}, ""))
		must(t, s.EndPull(t.Context(), "reg/other:1"))
		must(t, s.DeletePulls(t.Context(), []string{"id3"}))
	}
	again()
	before, err := os.ReadFile(s.path + "-wal")
	must(t, err)
	again()
	after, err := os.ReadFile(s.path + "-wal")
	must(t, err)
	if len(before) == 0 || !bytes.Equal(before, after) {
		t.Errorf("%d bytes of -wal, then %d", len(before), len(after))
	}
}

// TestFingerprint checks that the hash of a credential stays the same after a restart. Two nodes have different hashes of the same
// credential.
func TestFingerprint(t *testing.T) {
	s, _ := secretive(t)
	hash := func(s *Store, of string) []byte {
		t.Helper()
		h, err := s.Fingerprint([]byte(of))
		must(t, err)
		return h
	}
	first := hash(s, hush)
	s = reopen(t, s)
	other, _ := secretive(t)
	if len(first) != 32 || !bytes.Equal(first, hash(s, hush)) || bytes.Equal(first, hash(s, "other")) ||
		bytes.Equal(first, hash(other, hush)) {
		t.Errorf("%x", first)
	}
}
