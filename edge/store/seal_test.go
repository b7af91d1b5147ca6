package store

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/keyfile"
)

const hush = "correct horse battery staple"

// secretive returns a store with two pods, a Secret, a token and a local object. The constant hush is the content of the last three.
func secretive(t *testing.T) (s *Store, dir string) {
	t.Helper()
	dir = t.TempDir()
	s = open(t, filepath.Join(dir, "islet.db"))
	must(t, s.UpdatePods(t.Context(), []Pod{pod("a", "web"), pod("b", "log")}, nil))
	must(t, s.PutObject(t.Context(), Object{ObjectKey: ObjectKey{"Secret", "default", "wifi"}, Version: "1", Data: []byte(hush)}))
	must(t, s.PutToken(t.Context(), Token{TokenKey: TokenKey{UID: "a"}, Token: hush}))
	must(t, s.UpdateLocals(t.Context(), []Local{localRow("file", "Secret", "wifi", hush)}, nil))
	return s, dir
}

func openLogged(t *testing.T, path string) (*Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s, err := Open(t.Context(), path, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, &log
}

// readable returns the number of encrypted rows that can be decrypted.
func readable(t *testing.T, s *Store) int {
	t.Helper()
	objects, err := s.Objects(t.Context())
	must(t, err)
	tokens, err := s.Tokens(t.Context())
	must(t, err)
	local, err := s.Locals(t.Context())
	must(t, err)
	return len(objects) + len(tokens) + len(local)
}

func TestCopiedDatabaseRevealsNothing(t *testing.T) {
	s, dir := secretive(t)
	grep := func() {
		t.Helper()
		for _, suffix := range suffixes[:2] {
			data, err := os.ReadFile(s.path + suffix)
			if err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
			if bytes.Contains(data, []byte(hush)) {
				t.Error("plain text in", s.path+suffix)
			}
		}
	}
	grep()
	must(t, s.Close())
	grep()
	fi, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil || fi.Mode().Perm() != 0o600 || fi.Size() != keyfile.Size {
		t.Error(fi, err)
	}
	data, err := os.ReadFile(s.path)
	must(t, err)
	copied := filepath.Join(t.TempDir(), "islet.db")
	must(t, os.WriteFile(copied, data, 0o600))
	other, log := openLogged(t, copied)
	if n := readable(t, other); n != 0 || !strings.Contains(log.String(), "key=") {
		t.Error(n, log)
	}
}

// TestLostKey checks that a node that has lost its key continues with a new key. The encrypted rows are lost.
func TestLostKey(t *testing.T) {
	s, dir := secretive(t)
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir, KeyFile)))
	s, _ = openLogged(t, s.path)
	if n := readable(t, s); n != 0 {
		t.Error(n)
	}
	if _, err := os.Stat(filepath.Join(dir, KeyFile)); !os.IsNotExist(err) {
		t.Error("reading made a key:", err)
	}
	must(t, s.PutObject(t.Context(), Object{ObjectKey: ObjectKey{"Secret", "default", "wifi"}, Version: "1", Data: []byte(hush)}))
	must(t, s.PutToken(t.Context(), Token{TokenKey: TokenKey{UID: "b"}, Token: hush}))
	s = reopen(t, s)
	if n := readable(t, s); n != 2 {
		t.Error(n)
	}
	works(t, s)
}

// TestKeyIsNeverReplaced checks that a new key never replaces a file that exists at the key's path.
func TestKeyIsNeverReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), KeyFile)
	must(t, os.WriteFile(path, []byte("short"), 0o644))
	s := &seal{place: keyfile.Place{Dir: filepath.Dir(path)}}
	if _, err := s.encrypt([]byte(hush), "row"); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	must(t, s.place.Make())
	if data, err := os.ReadFile(path); err != nil || string(data) != "short" {
		t.Error(data, err)
	}
	must(t, os.WriteFile(path, bytes.Repeat([]byte("k"), keyfile.Size), 0o644))
	if _, err := s.encrypt([]byte(hush), "row"); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error(fi.Mode(), err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Error("something is left beside the key:", names, err)
	}
}

// TestSealedRowsCannotBeMoved checks that an encrypted row cannot be decrypted after it was renamed. Otherwise a user with write access to
// the database could give the secrets of one pod to another pod.
func TestSealedRowsCannotBeMoved(t *testing.T) {
	s, _ := secretive(t)
	must(t, s.Close())
	execute(t, s.path, "UPDATE objects SET name = 'public'; UPDATE tokens SET uid = 'b'; UPDATE local SET name = 'public'")
	s, log := openLogged(t, s.path)
	if n := readable(t, s); n != 0 || strings.Count(log.String(), " key=") != 3 {
		t.Error(n, log)
	}
}

func FuzzSeal(f *testing.F) {
	f.Add([]byte("data"), "a", "b", uint(3))
	s := &seal{place: keyfile.Place{Dir: f.TempDir()}}
	f.Fuzz(func(t *testing.T, data []byte, a, b string, flip uint) {
		sealed, err := s.encrypt(data, a, b)
		must(t, err)
		if got, err := s.decrypt(sealed, a, b); err != nil || !bytes.Equal(got, data) {
			t.Error(got, err)
		}
		sealed[flip%uint(len(sealed))] ^= 1
		if _, err := s.decrypt(sealed, a, b); err == nil {
			t.Error("a modified row was decrypted")
		}
		_, _ = s.decrypt(data, a, b)
	})
}

func TestTokenIsReplaced(t *testing.T) {
	s, _ := secretive(t)
	for _, text := range []string{"first", "second"} {
		must(t, s.PutToken(t.Context(), Token{TokenKey: TokenKey{UID: types.UID("a")}, Token: text, Expires: time.Unix(9, 0)}))
	}
	if tokens, err := s.Tokens(t.Context()); err != nil || len(tokens) != 1 || tokens[0].Token != "second" {
		t.Error(tokens, err)
	}
}

// TestSealedKeyFile checks that a store with a sealed key that does not open changes no file, and that it does not begin with a new key.
func TestSealedKeyFile(t *testing.T) {
	s, dir := secretive(t)
	must(t, s.Close())
	content := []byte(`{"version": 1, "parent": "AAAA", "policyKey": "AAAA"}`)
	must(t, os.WriteFile(filepath.Join(dir, KeyFile), content, 0o600))
	before, err := os.ReadFile(s.path)
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	if _, err := OpenSealed(t.Context(), s.path, keyfile.Place{TPM: filepath.Join(dir, "missing")}, log); err == nil {
		t.Error("the store opens without its key")
	}
	after, err := os.ReadFile(s.path)
	if err != nil || !bytes.Equal(before, after) {
		t.Error("the database was changed:", err)
	}
	if now, err := os.ReadFile(filepath.Join(dir, KeyFile)); err != nil || !bytes.Equal(now, content) {
		t.Errorf("the key was changed: %q, %v", now, err)
	}
}
