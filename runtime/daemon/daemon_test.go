package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// TestStorage checks that a blob with a lease survives a restart. It is removed when the lease is deleted.
func TestStorage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	c := Config{Root: t.TempDir(), Snapshotter: Native, Log: slog.New(slog.DiscardHandler)}
	d := start(t, c)
	if _, err := Start(ctx, c); err == nil {
		t.Fatal("two daemons opened one root")
	}
	lease, err := d.Client().LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	const blob = "some bytes"
	desc := ocispec.Descriptor{Digest: digest.FromString(blob), Size: int64(len(blob))}
	if err := content.WriteBlob(leases.WithLease(ctx, lease.ID), d.Client().ContentStore(), "x", strings.NewReader(blob), desc); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d = start(t, c)
	if _, err := d.Client().ContentStore().Info(ctx, desc.Digest); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	if err := d.Client().LeasesService().Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Client().ContentStore().Info(ctx, desc.Digest); err == nil {
		t.Fatal("garbage was not collected")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestInterruptedChecks checks the files of an overlayfs test that was interrupted. Start unmounts and removes them. If Start cannot open
// the storage, it keeps them.
func TestInterruptedChecks(t *testing.T) {
	c := overlayConfig(t)
	c.Log = slog.New(slog.NewTextHandler(failingLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	root, d := c.Root, start(t, c)
	var checks []string
	for _, dir := range []string{root, filepath.Join(root, Overlay)} {
		check := filepath.Join(dir, "multiple-lowerdir-check1")
		for _, sub := range []string{"lower", "upper", "work", "merged"} {
			if err := os.MkdirAll(filepath.Join(check, sub), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", check)
		if err := unix.Mount("overlay", check+"/merged", "overlay", 0, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(check+"/merged", 0) }) // the call fails if Start has already unmounted it
		dummy := filepath.Join(dir, "fsutils-dummy2")
		if err := os.WriteFile(dummy, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		checks = append(checks, check, dummy)
	}
	left := func() (n int) {
		for _, path := range checks {
			if _, err := os.Lstat(path); err == nil {
				n++
			}
		}
		return n
	}
	if second, err := Start(t.Context(), c); err == nil {
		second.Close()
		t.Error("a second agent opened the storage")
	}
	if left() != len(checks) {
		t.Error("a second agent removed files of a test that may be running")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = start(t, c)
	defer d.Close()
	if n := left(); n > 0 {
		t.Errorf("%d of %q were not removed", n, checks)
	}
}

// A failingLog is a log output that fails the test on any write.
type failingLog struct{ *testing.T }

func (f failingLog) Write(line []byte) (int, error) {
	f.Errorf("logged: %s", line)
	return len(line), nil
}

// TestTornIngests checks incomplete blobs after a power failure. Start removes a blob with missing or empty files. It keeps a blob whose
// download can be resumed.
func TestTornIngests(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	var logged strings.Builder
	c := Config{Root: t.TempDir(), Snapshotter: Native, Log: slog.New(slog.NewTextHandler(&logged, nil))}
	d := start(t, c)
	lease, err := d.Client().LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	ctx = leases.WithLease(ctx, lease.ID)
	tear := map[string]func(file string) error{
		"ref": os.Remove, "startedat": os.Remove,
		"updatedat": func(file string) error { return os.Truncate(file, 0) },
		"total":     func(file string) error { return os.Truncate(filepath.Join(filepath.Dir(file), "ref"), 0) },
		"whole":     func(string) error { return nil },
	}
	begin := func(ref string) content.Writer {
		w, err := content.OpenWriter(ctx, d.Client().ContentStore(), content.WithRef(ref), content.WithDescriptor(ocispec.Descriptor{Size: 100}))
		if err != nil {
			t.Fatalf("begin %s: %v", ref, err)
		}
		return w
	}
	ingests := filepath.Join(c.Root, "content", "ingest")
	for name, how := range tear {
		before := entries(t, ingests)
		w := begin(name)
		if _, err := w.Write([]byte("half of it")); err != nil {
			t.Fatal(err)
		}
		w.Close()
		for _, dir := range entries(t, ingests) {
			if !slices.Contains(before, dir) {
				if err := how(filepath.Join(ingests, dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if second, err := Start(ctx, c); err == nil {
		second.Close()
		t.Error("a second agent opened the storage")
	}
	if left := entries(t, ingests); len(left) != len(tear) {
		t.Errorf("a second agent removed blobs that may be in use: %q remain", left)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d = start(t, c)
	defer d.Close()
	if left := entries(t, ingests); len(left) != 1 {
		t.Errorf("unfinished blobs after a start: %q", left)
	}
	for name := range tear {
		w := begin(name)
		status, err := w.Status()
		if want := map[bool]int64{true: int64(len("half of it"))}[name == "whole"]; err != nil || status.Offset != want {
			t.Errorf("%s continues at %d (%v), want %d", name, status.Offset, err, want)
		}
		w.Close()
	}
	if err := d.Client().LeasesService().Delete(ctx, lease, leases.SynchronousDelete); err != nil {
		t.Errorf("garbage collection: %v", err)
	}
	if strings.Contains(logged.String(), "ERROR") {
		t.Errorf("errors are logged:\n%s", logged.String())
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func start(t *testing.T, c Config) *Daemon {
	t.Helper()
	d, err := Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
