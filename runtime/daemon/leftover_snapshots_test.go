package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// TestLeftoverSnapshot checks the directory of a snapshot without a record, which remains if the process dies while it creates the
// snapshot. Snapshots and views can be created nevertheless.
func TestLeftoverSnapshot(t *testing.T) {
	c := overlayConfig(t)
	d := start(t, c)
	defer d.Close()
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	sn := d.Client().SnapshotService(d.Snapshotter())
	leave := func(number string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(c.Root, Overlay, snapshotsDir, number, "fs"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	leave("1")
	addLayer(t, d, "layer")
	leave("2")
	if _, err := sn.View(ctx, "view", "layer"); err != nil {
		t.Error(err)
	}
	if _, err := sn.View(ctx, "view", "layer"); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second view with the same name: %v", err)
	}
}
