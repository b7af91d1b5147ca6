package setup

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/setuprecord"
)

// TestRemoveSecrets checks that the token is overwritten in place, everywhere in the file, and that a part of the secret which a power cut
// has left is overwritten too.
func TestRemoveSecrets(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	text := "# the token is " + token + "\n" + joining(ca)
	b.write(text)
	b.inUse()
	r, err := load(b.State)
	must(t, err)
	before, err := os.Stat(b.file())
	must(t, err)
	removed := strings.ReplaceAll(text, token, strings.Repeat("_", len(token)))
	for _, now := range []string{
		text, removed, strings.Replace(text, token, "_______.0123456789abcdef"[:len(token)], 1), strings.Replace(text, token, token[:20]+"___", 1),
	} {
		must(t, os.WriteFile(b.file(), []byte(now), 0o755))
		if out := b.inUse(); out.Applied {
			t.Errorf("applied again: %s", now)
		}
		must(t, r.removeSecrets())
		after, err := os.Stat(b.file())
		must(t, err)
		if got, err := os.ReadFile(b.file()); err != nil || string(got) != removed || !os.SameFile(before, after) {
			t.Errorf("%s, %v", got, err)
		}
		if list, err := os.ReadDir(b.boot); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	}
	for _, edited := range []string{strings.Replace(text, token, newToken, 1), text + "led: ACT\n", text[1:]} {
		must(t, os.WriteFile(b.file(), []byte(edited), 0o755))
		if err := r.removeSecrets(); !errors.Is(err, errEdited) {
			t.Errorf("got %v", err)
		}
		if got, err := os.ReadFile(b.file()); err != nil || string(got) != edited {
			t.Errorf("the edited file was changed: %s, %v", got, err)
		}
	}
	must(t, os.Remove(b.file()), r.removeSecrets())
}

// TestReadOnly checks a boot partition that takes no writes.
func TestReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	b, ca := newBoard(t), newCA(t)
	must(t, unix.Mount("none", b.boot, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(b.boot, unix.MNT_DETACH)) })
	b.write(joining(ca))
	b.inUse()
	r, err := load(b.State)
	must(t, err, unix.Mount("none", b.boot, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if err := r.removeSecrets(); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v", err)
	}
	must(t, unix.Mount("none", b.boot, "", unix.MS_REMOUNT, ""), r.removeSecrets())
}

// TestDamagedRecord checks that a record with places outside the file does no harm.
func TestDamagedRecord(t *testing.T) {
	for _, s := range []secret{{-1, 5, ""}, {3, -1, ""}, {math.MaxInt, math.MaxInt, ""}, {2, 9, ""}} {
		r := &record{Digest: "x", Secrets: []secret{s}}
		if r.isFile([]byte("abc")) || mask([]byte("abc"), r.Secrets) != nil {
			t.Errorf("%+v", s)
		}
	}
	b := newBoard(t)
	must(t, os.MkdirAll(b.State, 0o700), os.WriteFile(filepath.Join(b.State, setuprecord.File), []byte("{"), 0o600))
	b.write(head + "name: one\n")
	b.inUse()
}
