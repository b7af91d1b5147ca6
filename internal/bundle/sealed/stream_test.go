package sealed

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
)

// TestStream seals bytes to keys and with a passphrase. Only the keys and the passphrase open them. Each change and each missing byte is an
// error.
func TestStream(t *testing.T) {
	private, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	to, err := Recipients(public)
	keys, err2 := Identities("# office\n\n" + private + "\n")
	others, err3 := Identities(other)
	pass, err4 := PassphraseRecipient("sixteen letters!\n")
	words, err5 := PassphraseIdentity("sixteen letters!")
	wrong, err6 := PassphraseIdentity("sixteen letters?")
	if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("islet"), 40_000)
	for name, c := range map[string]struct {
		to         []age.Recipient
		good, evil []age.Identity
	}{"keys": {to, keys, others}, "a passphrase": {pass, words, wrong}} {
		var out bytes.Buffer
		w, err := SealStream(&out, c.to)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(data)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), FileMagic) || bytes.Contains(out.Bytes(), []byte("isletislet")) {
			t.Errorf("%s: %q", name, out.Bytes()[:80])
		}
		open := func(data []byte, keys []age.Identity) ([]byte, error) {
			r, err := OpenStream(bytes.NewReader(data), keys)
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		}
		if got, err := open(out.Bytes(), c.good); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := open(out.Bytes(), c.evil); !errors.Is(err, ErrNotForKey) {
			t.Errorf("%s: another key: %v", name, err)
		}
		for _, n := range []int{0, 10, 300, out.Len() / 2, out.Len() - 1} {
			if _, err := open(out.Bytes()[:n], c.good); err == nil {
				t.Errorf("%s: %d bytes were opened", name, n)
			}
		}
	}
	for _, text := range []string{"", "# only a comment", "AGE-SECRET-KEY-1QQQ", public} {
		if _, err := Identities(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := PassphraseRecipient("too short"); err == nil {
		t.Error("a short passphrase")
	}
	costly := FileMagic + "\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA 30\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n" +
		"--- AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"
	if _, err := OpenStream(strings.NewReader(costly), words); err == nil {
		t.Error("a passphrase that takes a terabyte of memory")
	}
}
