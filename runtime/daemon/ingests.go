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

// mostNote bounds what is read of a file beside an ingest's data; a reference is shorter.
const mostNote = 4 << 10

// dropTorn removes from a content store below dir the unfinished blobs (ingests) that nobody
// can resume. containerd writes the files beside their data without sync, so after a power
// cut they may be missing or empty. The content store logs an ingest without a reference
// as an error at every collection and never removes it, and at one with an empty reference
// it stops removing others. No writer may be open, of another process either: what it has just
// begun looks torn.
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
			errs = append(errs, fmt.Errorf("remove an unfinished blob that a power cut tore: %w", err))
		}
	}
	return errors.Join(errs...)
}

// resumable says whether the ingest at path has what its content store wants to go on with
// it: a reference whose digest is the directory's name, and the times of its start and of
// its last change.
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
