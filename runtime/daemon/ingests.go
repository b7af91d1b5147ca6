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

// mostNote bounds the bytes read from a file beside an ingest's data; a reference is shorter.
const mostNote = 4 << 10

// dropTorn removes the unfinished blobs (ingests) below dir that cannot be resumed. containerd
// writes the files beside their data without sync, so after a power cut these may be missing or
// empty. At every collection, the content store logs an ingest without a reference as an error and
// keeps it; at one with an empty reference it stops removing others. No writer may be open, in any
// process: an ingest that has just begun looks damaged.
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
// it: a reference whose digest is the directory's name, and the times of its start and its last
// change.
func resumable(path string) bool {
	ref, err := regular.Read(filepath.Join(path, "ref"), mostNote)
	if err != nil || digest.FromBytes(ref).Encoded() != filepath.Base(path) {
		return false
	}
	for _, name := range []string{"startedat", "updatedat"} {
		text, err := regular.Read(filepath.Join(path, name), mostNote)
		if err != nil || new(time.Time).UnmarshalText(text) != nil {
			return false
		}
	}
	return true
}
