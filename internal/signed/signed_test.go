package signed

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testFormat() Format { return Format{Noun: "note", Header: "note 1", Fields: []string{"a", "b"}} }

func accept(string, string) error { return nil }

func newKeyFile(t testing.TB, name string) (Key, ed25519.PrivateKey, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	public, err := NewKeyFile(file)
	if err != nil {
		t.Fatal(err)
	}
	private, err := ReadKeyFile(file)
	if err != nil || PublicKey(private).ID() != public.ID() {
		t.Fatalf("the file contains another key than %s: %v", public, err)
	}
	return public, private, file
}

func TestKeyFiles(t *testing.T) {
	_, _, file := newKeyFile(t, "key")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := NewKeyFile(file); !errors.Is(err, os.ErrExist) {
		t.Errorf("a key was replaced: %v", err)
	}
	for name, text := range map[string]string{
		"public": "islet-ed25519 AAAA", "short": privateHead + "AAAA", "long": privateHead + strings.Repeat("A", maxKeyFile), "empty": "",
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if k, err := ReadKeyFile(file); err == nil {
			t.Errorf("%s: is a private key: %v", name, PublicKey(k))
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	code := strings.TrimSpace(strings.TrimPrefix(string(text), privateHead))
	if _, err := ParseKey(string(text)); err == nil || strings.Contains(err.Error(), code[:8]) {
		t.Errorf("a private key is a public one, or is in the error: %t", err == nil)
	}
	if _, err := ReadKeyFile(t.TempDir()); err == nil {
		t.Error("a directory is a private key")
	}
}

// TestSignTwice checks that several people can sign one after the other, and that a second signature of a key replaces the first one.
func TestSignTwice(t *testing.T) {
	a, signA, _ := newKeyFile(t, "a")
	b, signB, _ := newKeyFile(t, "b")
	text := testFormat().New("1", "2")
	text.Sign(signA)
	var values []string
	again, err := testFormat().Parse(text.Bytes(), func(name, value string) error {
		values = append(values, name+value)
		return nil
	})
	if err != nil || strings.Join(values, " ") != "a1 b2" || !again.SameFields(text) || again.SameFields(testFormat().New("1", "3")) {
		t.Fatalf("%v, %q", err, values)
	}
	if err := again.Verify([]Key{a, b}, 2, "my keys"); err == nil {
		t.Error("one signature counts as two")
	}
	again.Sign(signB, signA)
	if err := again.Verify([]Key{a, b}, 2, "my keys"); err != nil {
		t.Error(err)
	}
	if got := again.Signers(); len(got) != 2 || got[0] != b.ID() || got[1] != a.ID() {
		t.Errorf("%q have signed", got)
	}
}

// FuzzParse checks that a text that is accepted is the text of its fields, and that nobody without the key can write one.
func FuzzParse(f *testing.F) {
	key, private, _ := newKeyFile(f, "key")
	text := testFormat().New("1", "2")
	text.Sign(private)
	f.Add(text.Bytes())
	f.Add([]byte("note 1\na: 1\nb: 2\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := testFormat().Parse(data, accept)
		if err != nil {
			return
		}
		if again, err := testFormat().Parse(got.Bytes(), accept); err != nil || !again.SameFields(got) {
			t.Errorf("%q is not read again: %v", got.Bytes(), err)
		}
		if got.Verify([]Key{key}, 1, "my keys") == nil && !bytes.HasPrefix(data, []byte("note 1\na: 1\nb: 2\n---\n")) {
			t.Errorf("%q has a signature of the key", data)
		}
	})
}
