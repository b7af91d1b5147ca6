package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/bundle/sealed"
)

func sealFor(t *testing.T, recipient string) *sealed.Document {
	t.Helper()
	to, err := sealed.Recipients(recipient)
	must(t, err)
	s, err := sealed.ReadSecret([]byte(`{"kind":"Secret","metadata":{"name":"wifi","namespace":"default"},"data":{"key":"c2VjcmV0"}}`))
	must(t, err)
	text, err := sealed.Seal([]sealed.Secret{*s}, to)
	must(t, err)
	docs, err := sealed.Parse(text)
	must(t, err)
	return &docs[0]
}

// TestSealedSecrets checks that a node makes its key when it is asked for its recipient and not before, that only this node opens a Secret
// for it, also after a restart and the loss of its database, and that a node with a new key cannot.
func TestSealedSecrets(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, filepath.Join(dir, "islet.db")), open(t, filepath.Join(t.TempDir(), "islet.db"))
	theirs, err := other.MakeRecipient()
	must(t, err)
	if _, err := s.OpenSecret(sealFor(t, theirs)); !errors.Is(err, ErrNoRecipient) {
		t.Error("a node without a key:", err)
	}
	if _, err := s.Recipient(); !errors.Is(err, ErrNoRecipient) {
		t.Error("a node without a key:", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, KeyFile)); !os.IsNotExist(err) {
		t.Error("reading made a key:", err)
	}
	recipient, err := s.MakeRecipient()
	must(t, err)
	doc := sealFor(t, recipient)
	opens := func(when string, node *Store, want bool) {
		t.Helper()
		if secret, err := node.OpenSecret(doc); (err == nil) != want || want && secret.Name != "wifi" {
			t.Errorf("%s: %v", when, err)
		}
	}
	opens("this node", s, true)
	opens("another node", other, false)
	if _, err := other.OpenSecret(doc); err == nil || !strings.Contains(err.Error(), "islet key recipient") ||
		strings.Contains(err.Error(), "identity") {
		t.Errorf("the error does not say for which key the Secret must be sealed: %v", err)
	}
	s = reopen(t, s)
	if again, err := s.MakeRecipient(); err != nil || again != recipient {
		t.Errorf("%s instead of %s after a restart: %v", again, recipient, err)
	}
	opens("after a restart", s, true)
	must(t, s.Close())
	for _, suffix := range suffixes {
		must(t, removeIfExists(s.path+suffix))
	}
	s = open(t, s.path)
	opens("after the loss of the database", s, true)
	must(t, s.Close())
	must(t, os.Remove(filepath.Join(dir, KeyFile)))
	s = open(t, s.path)
	if now, err := s.MakeRecipient(); err != nil || now == recipient {
		t.Errorf("the recipient %s of a lost key, %v", now, err)
	}
	opens("after the loss of the key", s, false)
}

func removeIfExists(path string) error {
	if err := os.Remove(path); !os.IsNotExist(err) {
		return err
	}
	return nil
}
