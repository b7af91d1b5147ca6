package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/runtime/mounts"
)

// maxNoteBytes is the maximum number of bytes that are read from a file beside an ingest's data. A
// reference is shorter.
const maxNoteBytes = 4 << 10

// dropTorn removes the unfinished blobs (ingests) below dir that cannot be resumed. containerd
// writes the files beside their data without sync, so they may be missing or empty after a power
// cut. At every collection the content store logs an ingest without a reference as an error and
// does not remove it. At an ingest with an empty reference it stops removing the others. No process
// may have a writer open, because an ingest that has just begun looks like a damaged one.
func dropTorn(dir string) error {
	root := filepath.Join(dir, "ingest")
	ingests, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list unfinished blobs: %w", err)
	}
	var errs []error
	for _, ingest := range ingests {
		path := filepath.Join(root, ingest.Name())
		if resumable(path) {
			continue
		}
		if err := mounts.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("remove an unfinished blob that a power cut damaged: %w", err))
		}
	}
	return errors.Join(errs...)
}

// resumable reports whether the ingest at path has the files that the content store needs to resume
// it. These are the reference, whose digest is the directory's name, the time of its start and the
// time of its last change.
func resumable(path string) bool {
	ref, err := regular.Read(filepath.Join(path, "ref"), maxNoteBytes)
	if err != nil || digest.FromBytes(ref).Encoded() != filepath.Base(path) {
		return false
	}
	for _, name := range []string{"startedat", "updatedat"} {
		text, err := regular.Read(filepath.Join(path, name), maxNoteBytes)
		if err != nil || new(time.Time).UnmarshalText(text) != nil {
			return false
		}
	}
	return true
}
