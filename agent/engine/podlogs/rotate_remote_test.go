package podlogs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// A view is an observed state with one running container. The string is the path of the container's log.
type view string

func (view) UIDs() []types.UID { return []types.UID{"uid"} }

func (v view) Pod(types.UID) plan.Observed {
	return plan.Observed{Containers: []plan.Container{{ID: "c1", Name: "c", State: plan.Running, LogPath: string(v)}}}
}

// writer is a fake runtime that writes one log.
type writer struct {
	path   string
	f      *os.File
	opened int
	fails  error
}

func (w *writer) reopen(context.Context, string) error {
	if w.fails != nil {
		return w.fails
	}
	if w.f != nil {
		w.f.Close()
	}
	var err error
	w.f, err = os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	w.opened++
	return err
}

// bench returns a Rotator that keeps 3 files of at most 10 bytes per log.
func bench(t *testing.T) (*Rotator, *writer) {
	t.Helper()
	dir := t.TempDir()
	w := &writer{path: filepath.Join(dir, "ns_pod_uid/c/0.log")}
	if err := os.MkdirAll(filepath.Dir(w.path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.reopen(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.f.Close() })
	return New(Config{View: view(w.path), Reopen: w.reopen, Dir: dir, MaxSize: 10, MaxFiles: 3, Workers: 1, Every: 10 * time.Second, Log: slog.New(slog.DiscardHandler)}), w
}

// This helper returns the names of the files in the log's directory.
func (w *writer) names(t *testing.T) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(w.path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (w *writer) write(t *testing.T, s string) {
	t.Helper()
	if _, err := io.WriteString(w.f, s); err != nil {
		t.Fatal(err)
	}
}

// TestRotation checks that a growing log is rotated at each scan. All rotated files except the newest are compressed, and the oldest are
// deleted.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := bench(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		w.write(t, "short\n")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if w.opened != 1 {
			t.Error("a short log is rotated")
		}
		for _, line := range []string{"first line\n", "second line\n", "third line\n", "fourth line\n"} {
			w.write(t, line)
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		cancel()
		<-ended
		names := w.names(t)
		if len(names) != 3 || names[0] != "0.log" || !strings.HasSuffix(names[1], ".gz") || strings.HasSuffix(names[2], ".gz") {
			t.Fatalf("files %q", names)
		}
		f, err := os.Open(filepath.Join(filepath.Dir(w.path), names[1]))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(z); err != nil || string(b) != "third line\n" {
			t.Errorf("%q, %v", b, err)
		}
		if b, err := os.ReadFile(filepath.Join(filepath.Dir(w.path), names[2])); err != nil || string(b) != "fourth line\n" {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// TestReopenFails checks that the log is renamed back if the runtime cannot reopen it.
func TestReopenFails(t *testing.T) {
	r, w := bench(t)
	w.write(t, "a long line\n")
	w.fails = errors.New("no")
	if err := r.rotate(t.Context(), "c1", w.path); err == nil {
		t.Error("no error")
	}
	if names := w.names(t); !slices.Equal(names, []string{"0.log"}) {
		t.Errorf("files %q", names)
	}
}

// TestBrokenOff checks that a log is reopened if the agent was killed after it renamed the file. An interrupted compression is repeated.
func TestBrokenOff(t *testing.T) {
	r, w := bench(t)
	dir := filepath.Dir(w.path)
	if err := os.Rename(w.path, w.path+".20260101-000000"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path+".20250101-000000.gz.tmp", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.rotate(t.Context(), "c1", w.path); err != nil || w.opened != 2 {
		t.Errorf("%v, opened %d times", err, w.opened)
	}
	w.write(t, "a long line\n")
	if err := r.rotate(t.Context(), "c1", w.path); err != nil {
		t.Error(err)
	}
	if names := w.names(t); len(names) != 3 || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".tmp") }) {
		t.Errorf("files in %s: %q", dir, names)
	}
}

// TestHugeRotatedFile checks that no worker is occupied by files that a pod has created with any apparent size, and that a compression
// ends with the agent. Other files are compressed, and the logs are rotated.
func TestHugeRotatedFile(t *testing.T) {
	r, w := bench(t)
	r.c.MaxFiles = 5
	large, hole := w.path+".20250101-000000", w.path+".20250101-000001"
	for path, size := range map[string]int64{large: minSizeLimit + 1, hole: 64 << 20} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
	}
	plain := w.path + ".20250101-000002"
	if err := os.WriteFile(plain, []byte("line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.write(t, "a long line\n")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.rotate(ended, "c1", w.path); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	if err := r.rotate(t.Context(), "c1", w.path); err != nil {
		t.Error(err)
	}
	var want []string
	for _, path := range []string{w.path, large, hole, plain + ".gz"} {
		want = append(want, filepath.Base(path))
	}
	if names := w.names(t); len(names) != 5 || !slices.Equal(names[:4], want) || strings.HasSuffix(names[4], ".gz") {
		t.Errorf("files %q", names)
	}
}

// TestSizeLimit checks that a log with a large containerLogMaxSize is compressed, and that a file that is not compressed is logged once.
func TestSizeLimit(t *testing.T) {
	r, w := bench(t)
	for size, want := range map[int64]int64{10: 1 << 30, 1 << 30: 2 << 30, 1 << 40: 2 << 40} {
		r.c.MaxSize = size
		if r.sizeLimit() != want {
			t.Errorf("the limit is %d, want %d", r.sizeLimit(), want)
		}
	}
	var out bytes.Buffer
	r.c.MaxSize, r.c.MaxFiles, r.c.Log = 10, 9, slog.New(slog.NewTextHandler(&out, nil))
	hole := w.path + ".20250101-000000"
	if err := errors.Join(os.WriteFile(hole, nil, 0o600), os.Truncate(hole, 64<<20)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.write(t, "a long line\n")
		if err := r.rotate(t.Context(), "c1", w.path); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(out.String(), "\n"); got != 1 {
		t.Errorf("%d lines: %s", got, &out)
	}
}

// TestHostileLog checks that the Rotator does not follow a symbolic link in place of a log or of its directory, and ignores other kinds of
// files.
func TestHostileLog(t *testing.T) {
	r, w := bench(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a long secret line\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Remove(w.path)
	if err := os.Symlink(secret, w.path); err != nil {
		t.Fatal(err)
	}
	if err := r.rotate(t.Context(), "c1", w.path); err == nil {
		t.Error("a link is rotated")
	}
	os.Remove(w.path)
	w.opened = 0
	if err := w.reopen(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	w.write(t, "a long line\n")
	if err := os.Symlink(secret, w.path+".20250101-000000"); err != nil {
		t.Fatal(err)
	}
	if err := r.rotate(t.Context(), "c1", w.path); err == nil {
		t.Error("a link is compressed")
	}
	if err := r.rotate(t.Context(), "c1", "/etc/passwd"); err == nil {
		t.Error("a log elsewhere is rotated")
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "a long secret line\n" {
		t.Errorf("%q, %v", b, err)
	}
	pod := filepath.Dir(filepath.Dir(w.path))
	if err := os.Rename(pod, pod+"-aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pod+"-aside", pod); err != nil {
		t.Fatal(err)
	}
	if err := r.rotate(t.Context(), "c1", w.path); err == nil {
		t.Error("a linked directory is entered")
	}
}
