package keyfile

import (
	"bytes"
	"os"
	"testing"

	"github.com/islet-edge/islet/internal/signed"
)

func recipient(t *testing.T, k *Key, err error) string {
	t.Helper()
	must(t, err)
	id, err := k.Identity()
	must(t, err)
	return id.Recipient()
}

// TestIdentity checks that the recipient of a node stays the same when its key is sealed, opened with the recovery key and unsealed, also
// in another directory, and that a new key has another recipient.
func TestIdentity(t *testing.T) {
	p := Place{Dir: t.TempDir(), TPM: startTPM(t)}
	must(t, p.Make())
	k, err := p.Read()
	want := recipient(t, k, err)
	var recovery string
	must(t, p.Seal(noted(&recovery)))
	k, err = p.Read()
	if got := recipient(t, k, err); got != want || !k.Sealed {
		t.Errorf("the sealed key has the recipient %s, want %s", got, want)
	}
	content, err := os.ReadFile(p.Path())
	must(t, err)
	board := Place{Dir: t.TempDir(), TPM: startTPM(t)} // with the disk of p
	must(t, os.WriteFile(board.Path(), content, 0o600))
	if _, err := board.Read(); err == nil {
		t.Error("another board opens the key")
	}
	must(t, board.Unseal(Request{Recovery: recovery}))
	k, err = board.Read()
	if got := recipient(t, k, err); got != want {
		t.Errorf("the key has the recipient %s on another board, want %s", got, want)
	}
	must(t, os.Remove(p.Path()))
	must(t, p.Make())
	k, err = p.Read()
	if got := recipient(t, k, err); got == want {
		t.Error("a new key has the recipient of the lost one")
	}
}

// TestIdentityIsStored checks the recipient of a fixed key: an islet that derives another one cannot open the Secrets of existing nodes.
func TestIdentityIsStored(t *testing.T) {
	k := &Key{Bytes: bytes.Repeat([]byte{7}, Size)}
	if got := recipient(t, k, nil); got != "age1mhxgaknlhf2aar3ev8e0gzzusc8zlkjhxxvmvtge7fd32uhsq99sffqfhj" {
		t.Error(got)
	}
}

// TestSignerIsStored checks the signer of a fixed key: with another one, the office would not know the states of existing nodes.
func TestSignerIsStored(t *testing.T) {
	k := &Key{Bytes: bytes.Repeat([]byte{7}, Size)}
	signer, err := k.Signer()
	must(t, err)
	if got := signed.PublicKey(signer).String(); got != "islet-ed25519 OwYya5CpH2v6lTeLOYNnaoORtq2/9Izx81XusXoPx5k=" {
		t.Error(got)
	}
}
