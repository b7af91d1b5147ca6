package update

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/release"
)

// Suffix is appended to the name of an archive to form the name of its release.
const Suffix = ".release"

// An Archive is an archive of islet in something else that is signed, such as a bundle. The signatures of the release are not verified yet.
type Archive struct {
	Name    string // for messages
	Release []byte // the text of the release
	Size    int64  // of the archive, in bytes
	Open    func() (io.ReadCloser, error)
}

// A source reads an archive and its release, from files, from a server or from an Archive.
type source struct {
	name    string
	client  *http.Client
	archive *Archive // instead of the name; may be nil
	indexed *indexed // the archive that an index names; may be nil
}

// String returns the name of the source for messages.
func (s *source) String() string {
	if s.archive != nil {
		return s.archive.Name
	}
	return redact(s.name)
}

// newSource returns the source of the archive with the given name: an absolute path or an https URL. An http URL
// is allowed only for this machine itself.
func newSource(name string, client *http.Client) (*source, error) {
	if filepath.IsAbs(name) {
		return &source{name: name}, nil
	}
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is neither the absolute path of a file nor an https URL", name)
	}
	if err := download.CheckURL(u); err != nil {
		return nil, fmt.Errorf("%s: %w", download.Redact(u), err)
	}
	return &source{name: name, client: download.Restrict(client)}, nil
}

// readRelease reads and decodes the release that belongs to the archive.
func (s *source) readRelease(ctx context.Context) (*release.Release, error) {
	if s.archive != nil {
		return release.Parse(s.archive.Release)
	}
	if s.client == nil { // for a missing archive, this error is clearer than the error for a missing release
		f, err := regular.Open(s.name)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	text, err := s.readText(ctx, s.releaseName(), release.MaxText)
	if err != nil {
		return nil, fmt.Errorf("the release must be next to the archive: %w", err)
	}
	r, err := release.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s%s: %w", redact(s.name), Suffix, err)
	}
	return r, nil
}

// readText reads a text with signatures. If it is longer than limit, the rest is missing except for one byte.
func (s *source) readText(ctx context.Context, name string, limit int64) ([]byte, error) {
	in, err := s.open(ctx, name, limit)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, download.UnreachableError{Err: fmt.Errorf("%s: %w", redact(name), err)}
	}
	return text, nil
}

// fetchArchive downloads or copies the archive to a file.
func (s *source) fetchArchive(ctx context.Context, r *release.Release, file string, tell Progress) error {
	tell.report("downloading", 0, r.Size)
	in, err := s.open(ctx, s.name, r.Size)
	if err != nil {
		return err
	}
	defer in.Close()
	w := &progressReader{Reader: in, reportProgress: tell, size: r.Size}
	if err := r.Save(w, file); err != nil {
		err = fmt.Errorf("%s: %w", s, err)
		if w.readFailed {
			err = download.UnreachableError{Err: err}
		}
		return err
	}
	return nil
}

// A progressReader reports progress each time that it has read data.
type progressReader struct {
	io.Reader
	reportProgress Progress
	got, size      int64
	readFailed     bool // the last Read returned an error
}

func (w *progressReader) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if n > 0 {
		w.got += int64(n)
		w.reportProgress.report("downloading", w.got, w.size)
	}
	w.readFailed = err != nil && err != io.EOF
	return n, err
}

// open opens a file of at most size bytes.
func (s *source) open(ctx context.Context, name string, size int64) (io.ReadCloser, error) {
	if s.archive != nil {
		return s.archive.Open()
	}
	if s.client == nil {
		return regular.Open(name)
	}
	a, err := download.Get(ctx, s.client, name, nil, size, http.StatusOK)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", redact(name), err)
	}
	return a.Body, nil
}

// releaseName returns the name of the release. The query of a URL stays at its end.
func (s *source) releaseName() string {
	name, query, hasQuery := strings.Cut(s.name, "?")
	if s.client == nil || !hasQuery {
		return s.name + Suffix
	}
	return name + Suffix + "?" + query
}

// redact returns the name of a source for messages: a path, or a URL without its user, password and query.
func redact(name string) string {
	u, err := url.Parse(name)
	switch {
	case filepath.IsAbs(name):
		return name
	case err != nil:
		return "a URL that is not valid"
	}
	return download.Redact(u)
}
