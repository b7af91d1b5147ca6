package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	records "github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/errdefs"
)

// renameLeftovers renames directories of snapshots without a record. Such a directory remains if the process dies while it creates a
// snapshot. The next snapshot gets the same number: its creation would fail with "file exists". The new name is the name of an unfinished
// snapshot, so the garbage collector removes the directory. The caller must hold the lock of meta.db, and nobody may use the snapshotter.
func renameLeftovers(ctx context.Context, dir string) error {
	layers := filepath.Join(dir, snapshotsDir)
	numbers := listNumbers(layers)
	if len(numbers) == 0 {
		return nil
	}
	db, err := records.NewMetaStore(filepath.Join(dir, namesFile))
	if err != nil {
		return err
	}
	recorded := map[string]string{}
	err = db.WithTransaction(ctx, false, func(ctx context.Context) (err error) {
		recorded, err = records.IDMap(ctx)
		return err
	})
	if errdefs.IsNotFound(err) { // the process died while it created the first snapshot
		err = nil
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	var errs []error
	for _, number := range numbers {
		if _, found := recorded[number]; !found {
			errs = append(errs, os.Rename(filepath.Join(layers, number), filepath.Join(layers, "new-"+rand.Text())))
		}
	}
	return errors.Join(errs...)
}

// listNumbers returns the names of the directories of snapshots. It ignores unfinished snapshots.
func listNumbers(layers string) (numbers []string) {
	entries, _ := os.ReadDir(layers) // with an error, the entries that could be read
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 64); err == nil {
			numbers = append(numbers, e.Name())
		}
	}
	return numbers
}
