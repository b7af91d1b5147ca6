package feed

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
)

// TestSources reads a bundle from each kind of server. A second request finds that the bundle is the same, and no layer is fetched twice.
func TestSources(t *testing.T) {
	a := artefact(t)
	s := newSite(t, a)
	for name, c := range map[string]struct {
		from   string
		answer func(http.ResponseWriter, *http.Request) bool
		most   int // requests
	}{
		"ranges":            {s.URL + "/kiosk.tar", nil, 30},
		"ranges, any order": {s.URL + "/sorted.tar", nil, 40},
		"whole":             {s.URL + "/kiosk.tar", noRanges, 1},
		"directory":         {s.URL + "/kiosk/", nil, 30},
		"registry":          {newHub(t, a), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s.set(c.answer)
			if c.answer == nil {
				s.answer.Store(nil)
			}
			o := opener(t, filepath.Join(t.TempDir(), "download"), nil)
			b, v, err := verify(t, o, c.from, poll.Validators{})
			if err != nil || b.ID != a.ID || v.IsZero() || v.Modified != "" {
				t.Fatalf("%+v, %v", v, err)
			}
			if n := s.count(); n > c.most || c.most == 1 && n != 1 {
				t.Errorf("%d requests", n)
			}
			bytes := s.out.Load()
			if size := a.Contents.Size; bytes > size+200<<10 || name == "registry" && bytes > 0 {
				t.Errorf("%d bytes of %d", bytes, size)
			}
			if _, again, err := verify(t, o, c.from, v); !errors.Is(err, ErrSame) || again != v {
				t.Errorf("again: %+v, %v", again, err)
			}
			if err := o.Remove(); err != nil || used(o.c.Dir) > 0 {
				t.Errorf("%d bytes are left: %v", used(o.c.Dir), err)
			}
		})
	}
}

// TestResume breaks the link in the middle of each layer. Each attempt, also after a restart of the agent, requests only the rest. A part
// that a power cut has damaged is fetched again.
func TestResume(t *testing.T) {
	a := artefact(t)
	s := newSite(t, a)
	const piece = 100 << 10
	for name, from := range map[string]string{"tar": "/kiosk.tar", "directory": "/kiosk/"} {
		dir := filepath.Join(t.TempDir(), "download")
		attempts := 0
		s.set(func(w http.ResponseWriter, r *http.Request) bool { return cutOnce(s, w, r, piece) })
		var err error
		for ; attempts < 20; attempts++ {
			if _, _, err = verify(t, opener(t, dir, nil), s.URL+from, poll.Validators{}); err == nil {
				break
			}
			if !errors.As(err, new(download.UnreachableError)) {
				t.Fatalf("%s: %v", name, err)
			}
			if attempts == 1 { // a power cut
				parts, _ := filepath.Glob(filepath.Join(dir, "*"+partSuffix))
				if len(parts) != 2 {
					t.Fatalf("%s: %q", name, parts)
				}
				if err := os.WriteFile(parts[0], make([]byte, piece), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		most := a.Contents.Size + int64(len(layerText)) + 2*piece + int64(attempts)*(80<<10) // the damaged layer is fetched twice
		if n := s.out.Load(); err != nil || attempts < 4 || n > most {
			t.Errorf("%s: %d attempts, %d bytes, at most %d: %v", name, attempts, n, most, err)
		}
	}
}

// cutOnce serves a request, and ends the answer after a number of bytes.
func cutOnce(s *site, w http.ResponseWriter, r *http.Request, most int64) bool {
	f, err := os.Open(filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
	if err != nil {
		return false
	}
	defer f.Close()
	http.ServeContent(&cutWriter{w, most}, r, "", time.Unix(1, 0), f)
	return true
}

// A cutWriter ends the connection after a number of bytes.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= int64(len(b))
	return c.ResponseWriter.Write(b)
}

// TestHostileServers checks that a server that lies or misbehaves is an error, that little is written, and whether a retry makes sense.
func TestHostileServers(t *testing.T) {
	a := artefact(t)
	s := newSite(t, a)
	header := func(key, value string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			http.ServeFile(&headerWriter{w, key, value}, r, filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
			return true
		}
	}
	endless := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusOK)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return true
			}
		}
	}
	layers := func(change func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			info, err := os.Stat(filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
			large := err == nil && strings.Contains(r.URL.Path, "blobs") && info.Size() > 100<<10
			if large {
				change(w, r)
			}
			return large
		}
	}
	const small = 10 << 10 // the layers that are right
	for name, c := range map[string]struct {
		from   string
		answer func(http.ResponseWriter, *http.Request) bool
		want   string
		again  bool  // it is unreachable
		most   int64 // bytes on the disk
	}{
		"not found":         {"/kiosk.tar", func(w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true }, "404", true, 0},
		"a page":            {"/kiosk/", func(w http.ResponseWriter, _ *http.Request) bool { io.WriteString(w, "<html>"); return true }, "not a bundle", false, 0},
		"an endless index":  {"/kiosk/", endless, "more than", false, 0},
		"an endless tar":    {"/kiosk.tar", endless, "not a bundle", false, 0},
		"no range":          {"/kiosk.tar", header("Content-Range", ""), "range", true, 0},
		"another range":     {"/kiosk.tar", header("Content-Range", "bytes 5-9/1000"), "range", true, 0},
		"a negative size":   {"/kiosk.tar", header("Content-Range", "bytes 0-65535/-1"), "range", true, 0},
		"a small range":     {"/kiosk.tar", header("Content-Range", "bytes 0-9/1000000"), "range", true, 0},
		"a huge tar":        {"/kiosk.tar", header("Content-Range", "bytes 0-65535/9000000000000000000"), "", true, 0},
		"compressed":        {"/kiosk.tar", header("Content-Encoding", "gzip"), "compresses", true, 0},
		"an unknown answer": {"/kiosk.tar", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(304); return true }, "unconditional", true, 0},
		"other bytes": {"/kiosk/", layers(func(w http.ResponseWriter, r *http.Request) {
			info, _ := os.Stat(filepath.Join(s.dir, filepath.FromSlash(r.URL.Path)))
			w.Header().Set("Content-Length", fmt.Sprint(info.Size()))
			_, _ = w.Write(make([]byte, info.Size()))
		}), "other bytes", false, small},
		"more bytes":  {"/kiosk/", layers(func(w http.ResponseWriter, r *http.Request) { endless(w, r) }), "more than", false, small},
		"fewer bytes": {"/kiosk/", layers(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }), "unexpected EOF", true, small},
		"another range of a layer": {"/kiosk/", layers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 7-9/10")
			w.WriteHeader(http.StatusPartialContent)
		}), "range", true, small},
	} {
		t.Run(name, func(t *testing.T) {
			s.set(c.answer)
			o := opener(t, filepath.Join(t.TempDir(), "download"), nil)
			_, _, err := verify(t, o, s.URL+c.from, poll.Validators{})
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, new(download.UnreachableError)) != c.again {
				t.Errorf("%v, want %q", err, c.want)
			}
			if n := used(o.c.Dir); n > c.most {
				t.Errorf("%d bytes are left", n)
			}
			if n := s.out.Load(); n > 12<<20 {
				t.Errorf("%d bytes were sent", n)
			}
		})
	}
}

// A headerWriter replaces a header of the answer.
type headerWriter struct {
	http.ResponseWriter
	key, value string
}

func (h *headerWriter) WriteHeader(code int) {
	h.Header().Set(h.key, h.value)
	if h.value == "" {
		h.Header().Del(h.key)
	}
	h.ResponseWriter.WriteHeader(code)
}

// TestWholeIsBounded checks that a tar that can only be sent as a whole is not written to the disk before its signatures are verified and
// the node accepts it, and that it cannot be larger than the signed contents allow.
func TestWholeIsBounded(t *testing.T) {
	a := artefact(t)
	s := newSite(t, a)
	grown := func(w http.ResponseWriter, r *http.Request) bool {
		data, err := os.ReadFile(filepath.Join(s.dir, "kiosk.tar"))
		if err != nil {
			return false
		}
		w.WriteHeader(http.StatusOK)
		for _, err = w.Write(data); err == nil; {
			_, err = w.Write(make([]byte, 1<<20))
		}
		return true
	}
	refuse := errors.New("refused")
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		path   string
		accept error
		full   bool
		want   string
	}{
		"refused":     {noRanges, "/kiosk.tar", refuse, false, "refused"},
		"a full disk": {noRanges, "/kiosk.tar", nil, true, "full"},
		"endless":     {grown, "/kiosk.tar", nil, false, "more than the"},
		"other tools": {noRanges, "/sorted.tar", nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.set(c.answer)
			checked := 0
			o := opener(t, filepath.Join(t.TempDir(), "download"), func(int64) error {
				if checked++; c.full && checked > 1 {
					return errors.New("full")
				}
				return nil
			})
			l, _, err := o.Open(t.Context(), Request{From: s.URL + c.path, Tell: func(string, int64, int64) {},
				Accept: func(*format.Bundle) error { return c.accept }})
			if err == nil {
				l.Close()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if n := used(o.c.Dir); err != nil && n > 0 {
				t.Errorf("%d bytes are left", n)
			}
		})
	}
}

// TestFullDisk checks that a layer for which the disk has no space is not requested.
func TestFullDisk(t *testing.T) {
	s := newSite(t, artefact(t))
	full := errors.New("full")
	o := opener(t, filepath.Join(t.TempDir(), "download"), func(n int64) error {
		if n > 100<<10 {
			return full
		}
		return nil
	})
	_, _, err := verify(t, o, s.URL+"/kiosk/", poll.Validators{})
	if !errors.Is(err, full) || errors.As(err, new(download.UnreachableError)) || s.out.Load() > 100<<10 {
		t.Errorf("%d bytes: %v", s.out.Load(), err)
	}
}

// TestChangedMeanwhile replaces the tar on the server after the first request. No part of the other tar is used.
func TestChangedMeanwhile(t *testing.T) {
	s := newSite(t, artefact(t))
	o := opener(t, filepath.Join(t.TempDir(), "download"), nil)
	n := 0
	s.set(func(w http.ResponseWriter, _ *http.Request) bool {
		if n++; n > 1 {
			w.Header().Set("ETag", `"other"`)
			http.ServeFile(w, s.requests[len(s.requests)-1], filepath.Join(s.dir, "kiosk.tar"))
			return true
		}
		return false
	})
	_, _, err := verify(t, o, s.URL+"/kiosk.tar", poll.Validators{})
	if !errors.As(err, new(download.UnreachableError)) || !strings.Contains(err.Error(), "changed on the server") {
		t.Error(err)
	}
}

// TestRedact checks that no message contains the password or the query of a URL.
func TestRedact(t *testing.T) {
	for from, want := range map[string]string{
		"https://user:secret@example.com/k.tar?token=secret": "https://example.com/k.tar",
		"oci://registry.example.com/kiosk:42":                "oci://registry.example.com/kiosk:42",
		"https://user:secret@%zz/":                           "a URL that is not valid",
	} {
		if got := Redact(from); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	o := opener(t, t.TempDir(), nil)
	for _, from := range []string{"https://user:secret@127.0.0.1:1/k.tar?token=secret", "http://user:secret@example.com/?token=secret",
		"https://user:secret@%zz/?token=secret", "ftp://user:secret@127.0.0.1/x"} {
		if _, _, err := verify(t, o, from, poll.Validators{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", from, err)
		}
	}
}

// TestDirectoryWithoutSlash checks that the error says to add a slash if the server redirects the URL of a directory to the one with a
// slash, whatever the server answers there. The error of a tar behind another redirect does not say so.
func TestDirectoryWithoutSlash(t *testing.T) {
	s := newSite(t, artefact(t))
	for name, listing := range map[string]func(http.ResponseWriter, *http.Request){
		"a listing": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>index.json oci-layout</html>") },
		"a part of a listing": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("<html>index.json oci-layout</html>"))
		},
		"no listing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
	} {
		s.set(func(w http.ResponseWriter, r *http.Request) bool {
			switch r.URL.Path {
			case "/kiosk", "/latest":
				to := map[string]string{"/kiosk": "/kiosk/", "/latest": "/listing/"}[r.URL.Path]
				http.Redirect(w, r, to, http.StatusMovedPermanently)
			case "/kiosk/", "/listing/":
				listing(w, r)
			default:
				return false
			}
			return true
		})
		const advice = "/kiosk: add a slash to the URL, which names a directory: "
		_, _, err := verify(t, opener(t, filepath.Join(t.TempDir(), "download"), nil), s.URL+"/kiosk?token=x", poll.Validators{})
		unreachable := errors.As(err, new(download.UnreachableError))
		if err == nil || !strings.HasPrefix(err.Error(), s.URL+advice) || unreachable != (name == "no listing") {
			t.Errorf("%s: %v", name, err)
		}
		_, _, err = verify(t, opener(t, filepath.Join(t.TempDir(), "download"), nil), s.URL+"/latest", poll.Validators{})
		if err == nil || strings.HasPrefix(err.Error(), s.URL+"/latest: the URL of a directory") {
			t.Errorf("%s behind another redirect: %v", name, err)
		}
	}
}
