package setup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/setuprecord"
)

// TestPowerCut kills the process before each step. Either nothing was done, or the next run completes everything.
func TestPowerCut(t *testing.T) {
	ca := newCA(t)
	program, err := os.Executable()
	must(t, err)
	text := joining(ca) + "bundle: {every: 2h}\n"
	want := ""
	for at := 99; at != 0; { // the first run has no power cut
		b := newBoard(t)
		dir := filepath.Dir(b.boot)
		must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/edge.yaml", []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"), 0o600))
		before := strings.Join(placed(t, b.Dir), "")
		b.write(text)
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", cutVariable, at, dir))
		out, err := cmd.CombinedOutput()
		cut := cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled()
		if err != nil && !cut {
			t.Fatalf("%v: %s", err, out)
		}
		_, err = os.Stat(filepath.Join(b.State, setuprecord.File))
		isStored := err == nil
		if !isStored && strings.Join(placed(t, b.Dir), "") != before {
			t.Error("a file was put in place before the record")
		}
		if result := b.inUse(); result.Applied == isStored {
			t.Errorf("cut at step %d: applied again: %v", at, result.Applied)
		}
		got := strings.ReplaceAll(contents(t, b.Dir), dir, "DIR")
		switch {
		case at == 99:
			want = got
			at = 1
		case got != want:
			t.Errorf("cut at step %d: %s\nwant %s", at, got, want)
			at++
		case cut:
			at++
		default:
			if at < 7 {
				t.Errorf("only %d steps", at-1)
			}
			at = 0
		}
	}
}

// placed returns the names of the files of the configuration that are not staged.
func placed(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		if !strings.Contains(e.Name(), stagedSuffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestUnwritable checks that nothing is changed if the record or a file cannot be stored, and that the agent may start then.
func TestUnwritable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	b, ca := newBoard(t), newCA(t)
	b.write(joining(ca))
	must(t, os.MkdirAll(filepath.Join(b.State, setuprecord.File), 0o755))
	if _, err := b.apply(); !errors.As(err, new(*RefusedError)) || contents(t, b.Dir) != "" {
		t.Errorf("got %v", err)
	}
	must(t, os.Remove(filepath.Join(b.State, setuprecord.File)))
	for _, name := range []string{"flags", "ca.crt"} {
		must(t, os.MkdirAll(filepath.Join(b.Dir, name, "x"), 0o755))
		if got := b.refused(); !strings.Contains(got, name) || len(placed(t, b.Dir)) != 1 {
			t.Errorf("a directory has the place of a file: %s", got)
		}
		must(t, os.RemoveAll(filepath.Join(b.Dir, name)))
	}
	must(t, unix.Mount("none", b.Dir, "tmpfs", 0, "size=8k")) // the first file fits
	if got := b.refused(); !strings.Contains(got, "no space") || contents(t, b.Dir) != "" {
		t.Errorf("%s, left %s", got, contents(t, b.Dir))
	}
	must(t, unix.Mount("none", b.Dir, "", unix.MS_REMOUNT, "size=1m"))
	// The disk fails when the files are staged and a part of them is in place.
	steps, failAt := 0, 8
	b.Step = func() {
		if steps++; steps == failAt {
			must(t, unix.Mount("none", b.Dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
	}
	t.Cleanup(func() { must(t, unix.Unmount(b.Dir, unix.MNT_DETACH)) })
	for range 2 {
		if got := b.refused(); !strings.Contains(got, "read-only") {
			t.Error(got)
		}
	}
	if r, err := load(b.State); err != nil || len(r.Pending) == 0 {
		t.Errorf("not partly in place: %v", err)
	}
	synctest.Test(t, func(t *testing.T) { // Watch does nothing while a part of the targets is missing
		w := watchBoard(t, b)
		w.set(link.Up, "")
		<-w.ended
		if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), token) {
			t.Errorf("the token is gone: %v", err)
		}
	})
	must(t, unix.Mount("none", b.Dir, "", unix.MS_REMOUNT, ""))
	b.inUse()
	if b.made("ca.crt") != ca.pem || !strings.Contains(b.made("flags"), "kiosk") || strings.Contains(contents(t, b.Dir), stagedSuffix) {
		t.Error(contents(t, b.Dir))
	}
	if r, err := load(b.State); err != nil || r.Refused != nil || len(r.Pending) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
