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

// maxIngestFile is the maximum number of bytes that are read from a metadata file of an ingest,
// such as its reference.
const maxIngestFile = 4 << 10

// removeDamaged removes the unfinished blobs (ingests) below dir that cannot be resumed. containerd does not sync their metadata files,
// which may be missing or empty after a power cut. The content store never removes such an ingest. If the reference is missing, the content
// store logs an error at each garbage collection. If the reference is empty, the content store does not remove other ingests either. No
// process may have a writer open, because a new ingest cannot be distinguished from a damaged one.
func removeDamaged(dir string) error {
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
		if isResumable(path) {
			continue
		}
		if err := mounts.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("remove an unfinished blob that a power cut damaged: %w", err))
		}
	}
	return errors.Join(errs...)
}

// isResumable reports whether the ingest at path has the valid metadata files that the content
// store needs to resume it: the reference, the start time, and the time of the last change. The
// name of the directory must be the digest of the reference.
func isResumable(path string) bool {
	ref, err := regular.Read(filepath.Join(path, "ref"), maxIngestFile)
	if err != nil || digest.FromBytes(ref).Encoded() != filepath.Base(path) {
		return false
	}
	for _, name := range []string{"startedat", "updatedat"} {
		text, err := regular.Read(filepath.Join(path, name), maxIngestFile)
		if err != nil || new(time.Time).UnmarshalText(text) != nil {
			return false
		}
	}
	return true
}
