package sealed

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"

	"filippo.io/age"
)

// TestIdentity checks that the bytes of a private key determine the recipient, and that age accepts the text of the key and opens a Secret
// with it. A node with another key cannot open the Secret.
func TestIdentity(t *testing.T) {
	for range 20 {
		private := make([]byte, IdentitySize)
		if _, err := rand.Read(private); err != nil {
			t.Fatal(err)
		}
		id, err := NewIdentity(private)
		if err != nil {
			t.Fatal(err)
		}
		same, err := NewIdentity(bytes.Clone(private))
		if err != nil || same.Recipient() != id.Recipient() || id.key.String() != encodeIdentity(private) {
			t.Fatalf("%s and %s, %v", id.Recipient(), same.Recipient(), err)
		}
		private[IdentitySize/2]++
		other, err := NewIdentity(private)
		if err != nil || other.Recipient() == id.Recipient() {
			t.Fatalf("another key has the recipient %s, %v", id.Recipient(), err)
		}
		docs, err := Parse(sealText(t, wifi, id.key))
		if err != nil || len(docs) != 1 || strings.Join(docs[0].Recipients, " ") != id.Recipient() {
			t.Fatalf("%+v, %v", docs, err)
		}
		if s, err := same.Open(&docs[0]); err != nil || string(s.JSON) != wifi {
			t.Fatalf("%+v, %v", s, err)
		}
		if s, err := other.Open(&docs[0]); err == nil {
			t.Fatalf("another node reads %+v", s)
		}
	}
	for _, size := range []int{0, IdentitySize - 1, IdentitySize + 1} {
		if _, err := NewIdentity(make([]byte, size)); err == nil {
			t.Errorf("a key of %d bytes is accepted", size)
		}
	}
}

// TestIdentityText checks the text of a key that age's own tools have made.
func TestIdentityText(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	private := ungroup(t, id.String())
	if got := encodeIdentity(private); got != id.String() {
		t.Errorf("%s, want %s", got, id)
	}
}

// ungroup returns the private key of a text of age.
func ungroup(t *testing.T, text string) (private []byte) {
	_, letters, _ := strings.Cut(strings.ToLower(text), identityPrefix+"1")
	var bits, count uint
	for _, c := range []byte(letters[:len(letters)-6]) {
		bits, count = bits<<5|uint(strings.IndexByte(bech32Letters, c)), count+5
		if count >= 8 {
			private, count = append(private, byte(bits>>(count-8))), count-8
			bits &= 1<<count - 1
		}
	}
	if len(private) != IdentitySize {
		t.Fatalf("%d bytes", len(private))
	}
	return private
}
