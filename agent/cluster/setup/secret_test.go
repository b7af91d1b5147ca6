package setup

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/link"
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
	for _, edited := range []string{strings.Replace(text, token, newToken, 1), text + "led: ACT\n", text[1:], text + strings.Repeat("#", 4*maxFile)} {
		must(t, os.WriteFile(b.file(), []byte(edited), 0o755))
		if err := r.removeSecrets(); !errors.Is(err, errEdited) {
			t.Errorf("got %v", err)
		}
		if got, err := os.ReadFile(b.file()); err != nil || string(got) != edited {
			t.Errorf("the edited file was changed: %s, %v", got, err)
		}
	}
	must(t, os.Remove(b.file()))
	if err := r.removeSecrets(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a partition that is not mounted: %v", err)
	}
}

// TestReadOnly checks a boot partition that takes no writes.
func TestReadOnly(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.mountBoot()
	b.write(joining(ca))
	b.inUse()
	r, err := load(b.State)
	must(t, err, b.setReadOnly(true))
	if err := r.removeSecrets(); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v", err)
	}
	must(t, b.setReadOnly(false), r.removeSecrets())
	must(t, b.setReadOnly(true), r.removeSecrets())
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

// TestCopiedAgain checks that the secrets of the same file are removed again after it was copied to the boot partition again.
func TestCopiedAgain(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	b.inUse()
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			w := watchBoard(t, b)
			w.set(link.Up, "")
			<-w.ended
		})
		if text, err := os.ReadFile(b.file()); err != nil || strings.Contains(string(text), token) {
			t.Errorf("the token is still there: %v", err)
		}
		b.write(joining(ca))
		if out := b.inUse(); out.Applied {
			t.Error("applied again")
		}
	}
}

// TestShortLines checks that a key whose lines are too short to be removed is refused.
func TestShortLines(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	cert, key := ca.issue(t, "system:node:a")
	lines := strings.Split(strings.TrimSpace(key), "\n")
	short := lines[0] + "\n"
	for _, line := range lines[1 : len(lines)-1] {
		for ; len(line) > 8; line = line[8:] {
			short += line[:8] + "\n"
		}
		short += line + "\n"
	}
	b.write(certified("https://x", ca, cert, short+lines[len(lines)-1]))
	if got := b.refused(); !strings.Contains(got, "cluster.key: its lines") {
		t.Error(got)
	}
}
