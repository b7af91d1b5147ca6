package apitest

import (
	"compress/gzip"
	"io"
	"net/http"
)

// streamsList reports whether a watch begins with the present objects and a bookmark.
func streamsList(r *http.Request) bool { return r.URL.Query().Get("sendInitialEvents") == "true" }

// endOfList is the key of the bookmark after the present objects.
var endOfList = key{name: "end of the list"}

// A stream is the body of the answer to a watch. It compresses the events between two calls of flush as one gzip member, as an API server
// of Kubernetes 1.37 does.
type stream struct {
	w     http.ResponseWriter
	zip   *gzip.Writer // nil if the body is not compressed
	dirty bool         // the gzip writer has data that flush must send
}

func newStream(w http.ResponseWriter, r *http.Request) *stream {
	s := &stream{w: w}
	if streamsList(r) && r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		s.zip = gzip.NewWriter(w)
	}
	return s
}

// Write adds a part of an event.
func (s *stream) Write(p []byte) (int, error) {
	var to io.Writer = s.w
	if s.zip != nil {
		to, s.dirty = s.zip, true
	}
	return to.Write(p)
}

func (s *stream) flush() {
	if s.dirty {
		_ = s.zip.Flush() // without this call, a reader gets the events only with the next member
		_ = s.zip.Close()
		s.zip.Reset(s.w)
		s.dirty = false
	}
	_ = http.NewResponseController(s.w).Flush()
}
