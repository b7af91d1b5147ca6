package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

// TestLeftoverSnapshot checks the directory of a snapshot without a record, which remains if the process dies while it creates the
// snapshot. Snapshots and views can be created after the next start, and the garbage collector removes only the directory.
func TestLeftoverSnapshot(t *testing.T) {
	c := overlayConfig(t)
	layers := filepath.Join(c.Root, Overlay, snapshotsDir)
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	start(t, c).Close()
	leave := func(number string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(layers, number, "fs", "leftover"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	leave("1") // the first snapshot: the snapshotter's database has no bucket yet
	db, err := bolt.Open(filepath.Join(c.Root, Overlay, namesFile), 0o600, nil)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	d := start(t, c)
	addLayer(t, d, "layer")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	leave("2")
	d = start(t, c)
	defer d.Close()
	sn := d.Client().SnapshotService(d.Snapshotter())
	if _, err := sn.View(ctx, "view", "layer"); err != nil {
		t.Error(err)
	}
	if _, err := sn.View(ctx, "view", "layer"); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second view with the same name: %v", err)
	}
	if d.Damage() != "" {
		t.Errorf("the storage was replaced: %s", d.Damage())
	}
	if err := sn.Remove(ctx, "view"); err != nil {
		t.Error(err)
	}
	collectNow(t, d)
	if got := entries(t, layers); len(got) != 1 || got[0] != "1" {
		t.Errorf("left: %q", got)
	}
}
