package sealed

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
)

// TestStream seals bytes to a key. Only this key opens them. Each missing byte is an error.
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
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("islet"), 40_000)
	var out bytes.Buffer
	w, err := SealStream(&out, to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), FileMagic) || bytes.Contains(out.Bytes(), []byte("isletislet")) {
		t.Errorf("%q", out.Bytes()[:80])
	}
	open := func(data []byte, keys []age.Identity) ([]byte, error) {
		r, err := OpenStream(bytes.NewReader(data), keys)
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	}
	if got, err := open(out.Bytes(), keys); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := open(out.Bytes(), others); !errors.Is(err, ErrNotForKey) {
		t.Errorf("another key: %v", err)
	}
	for n := 0; n < out.Len(); n += 1 + n/10 {
		if _, err := open(out.Bytes()[:n], keys); err == nil {
			t.Errorf("%d bytes were opened", n)
		}
	}
	for _, text := range []string{"", "# only a comment", "AGE-SECRET-KEY-1QQQ", public} {
		if _, err := Identities(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
