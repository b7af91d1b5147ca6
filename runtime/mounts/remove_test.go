package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemoveAllInSeveralReads removes a directory with more names than one read returns, and with a deep tree.
func TestRemoveAllInSeveralReads(t *testing.T) {
	dir := t.TempDir() + "/d"
	deep := dir + "/deep"
	for i := range 3 * maxOpen {
		deep = fmt.Sprintf("%s/%d", deep, i%2)
	}
	must(t, os.MkdirAll(deep, 0o755))
	must(t, os.WriteFile(deep+"/file", nil, 0o600))
	for i := range 1000 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%040d", dir, i), nil, 0o600))
	}
	must(t, RemoveAll(dir))
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s exists: %v", dir, err)
	}
}

// TestRemoveUntil checks that a removal ends with its context, and that a later one continues it.
func TestRemoveUntil(t *testing.T) {
	dir := t.TempDir() + "/d"
	must(t, os.MkdirAll(dir+"/a/b", 0o755))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := RemoveUntil(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Lstat(dir + "/a/b"); err != nil {
		t.Error(err)
	}
	must(t, RemoveUntil(t.Context(), dir))
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s exists: %v", dir, err)
	}
}

// TestRemoveEntryThatChanged checks that a container which exchanges a directory and a file while they are removed does not keep either.
func TestRemoveEntryThatChanged(t *testing.T) {
	parent := t.TempDir()
	dir, err := os.Open(parent)
	must(t, err)
	defer dir.Close()
	full := func(name string) { must(t, os.MkdirAll(parent+"/"+name+"/in", 0o755)) }
	file := func(name string) { must(t, os.WriteFile(parent+"/"+name, nil, 0o600)) }
	link := func(name string) { must(t, os.Symlink(t.TempDir(), parent+"/"+name)) }
	for i, c := range []struct {
		now  func(name string)
		read byte
	}{
		{full, unix.DT_DIR}, {full, unix.DT_REG}, {full, unix.DT_UNKNOWN},
		{file, unix.DT_DIR}, {file, unix.DT_REG}, {link, unix.DT_DIR}, {func(string) {}, unix.DT_DIR},
	} {
		name := fmt.Sprint(i)
		c.now(name)
		r := remover{top: -1}
		if err := r.remove(int(dir.Fd()), entry{name: name, kind: c.read}, 1); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if _, err := os.Lstat(filepath.Join(parent, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d: it exists: %v", i, err)
		}
	}
}

func TestParseEntriesOfBrokenRecords(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, 10), make([]byte, 64), append(make([]byte, 16), 255, 255, 4, 'a', 0)} {
		if got := parseEntries(b); len(got) != 0 {
			t.Errorf("%v: %v", b, got)
		}
	}
}

// BenchmarkRemoveAll removes directories like those of a pod with one container. Its metric is CPU time, because the kernel does the work.
func BenchmarkRemoveAll(b *testing.B) {
	top := b.TempDir()
	var spent int64
	var before, after unix.Timespec
	for b.Loop() {
		b.StopTimer()
		for _, d := range []string{"bundle/m/7", "bundle/rootfs", "container/upper/etc", "container/work/work", "pod/volumes/kubernetes.io~projected/token",
			"pod/plugins", "pod/containers/c"} {
			must(b, os.MkdirAll(top+"/d/"+d, 0o755))
		}
		for _, f := range []string{"bundle/config.json", "bundle/init.pid", "bundle/oci.log", "bundle/exit.json", "bundle/m/5", "bundle/m/6", "pod/etc-hosts",
			"pod/containers/c/12345678"} {
			must(b, os.WriteFile(top+"/d/"+f, nil, 0o600))
		}
		must(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &before))
		b.StartTimer()
		for _, d := range []string{"bundle", "container", "pod", "."} {
			must(b, RemoveAll(filepath.Join(top, "d", d)))
		}
		must(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &after))
		spent += after.Nano() - before.Nano()
	}
	b.ReportMetric(float64(spent)/1000/float64(b.N), "CPU-us/op")
}
