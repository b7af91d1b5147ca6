package feed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/runtime/mounts"
)

// partSuffix is the suffix of the name of a file that is not complete.
const partSuffix = ".part"

// A folder contains layers that were fetched, each under its digest. Files are not synced: whoever reads one verifies its bytes.
type folder struct {
	dir        string
	checkSpace func(bytes int64) error
}

// Remove removes the files that the Opener has fetched. No Layout may be open.
func (o *Opener) Remove() error { return (&folder{dir: o.c.Dir}).remove() }

// LastWrite returns the time at which a file in the folder was last written. It may be in the future if the clock was set back. If there is
// no folder, found is false.
func (o *Opener) LastWrite() (last time.Time, found bool) {
	list, err := os.ReadDir(o.c.Dir)
	if err != nil {
		return last, false
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last, true
}

func (f *folder) remove() error { return mounts.RemoveAll(f.dir) }

// bytes returns the size of all files.
func (f *folder) bytes() (sum int64) {
	list, err := os.ReadDir(f.dir)
	if err != nil {
		return 0
	}
	for _, e := range list {
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// fetch returns a blob as a file with the right digest. It fetches the bytes that the folder does not have.
func (f *folder) fetch(
	ctx context.Context, from server, d ocispec.Descriptor, tell func(status string, current, total int64),
) (io.ReadCloser, error) {
	if err := format.CheckDigest(d.Digest); err != nil { // it becomes a name
		return nil, err
	}
	name := filepath.Join(f.dir, d.Digest.Encoded())
	if out, err := os.Open(name); err == nil {
		if info, err := out.Stat(); err == nil && info.Size() == d.Size {
			return out, nil
		}
		out.Close()
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, err
	}
	for {
		resumed, err := f.fetchPart(ctx, from, d, name+partSuffix, tell)
		if err == nil {
			break
		}
		if !errors.Is(err, errDiffers) {
			return nil, err
		}
		err = errors.Join(err, os.Remove(name+partSuffix))
		if !resumed { // otherwise a power cut may have damaged the first part
			return nil, err
		}
	}
	if err := os.Rename(name+partSuffix, name); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// errDiffers is the error of a blob with other bytes than its digest says.
var errDiffers = errors.New("the server has other bytes: the bundle is damaged or was changed")

// fetchPart completes the file of a blob. It reports whether the file had bytes of an earlier attempt.
func (f *folder) fetchPart(
	ctx context.Context, from server, d ocispec.Descriptor, part string, tell func(status string, current, total int64),
) (resumed bool, err error) {
	out, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	have, err := io.Copy(sum, io.LimitReader(out, d.Size+1))
	if err == nil && have > d.Size {
		have, err = 0, rewind(out, sum)
	}
	if err == nil {
		err = f.checkSpace(d.Size - have)
	}
	if err != nil {
		return false, err
	}
	if have < d.Size {
		r, start, err := from.fetch(ctx, d, have)
		if err != nil {
			return have > 0, err
		}
		defer r.Close()
		if start != have { // the server cannot resume
			if have, err = 0, rewind(out, sum); err != nil {
				return false, err
			}
		}
		left := d.Size - have
		n, err := io.Copy(io.MultiWriter(out, sum, &meter{have, d.Size, tell}), io.LimitReader(&exactReader{r, left}, left+1))
		if err != nil {
			return have > 0, fmt.Errorf("read %s: %w", d.Digest, err)
		}
		if n > left {
			return have > 0, fmt.Errorf("%s has more than %d bytes: %w", d.Digest, d.Size, errDiffers)
		}
	}
	if digest.NewDigest(digest.SHA256, sum) != d.Digest {
		return have > 0, fmt.Errorf("%s: %w", d.Digest, errDiffers)
	}
	return have > 0, nil
}

// rewind empties a file and its checksum.
func rewind(f *os.File, sum hash.Hash) error {
	sum.Reset()
	_, err := f.Seek(0, io.SeekStart)
	return errors.Join(err, f.Truncate(0))
}

// A meter reports the progress of a download.
type meter struct {
	done, total int64
	tell        func(status string, current, total int64)
}

func (m *meter) Write(b []byte) (int, error) {
	m.done += int64(len(b))
	m.tell("downloading", m.done, m.total)
	return len(b), nil
}
