package source

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/islet-edge/islet/edge/manifest"
)

func TestFetch(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			io.WriteString(w, "kind: Pod\n")
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/large":
			io.Copy(w, io.LimitReader(zeros{}, manifest.MaxSize+1))
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	for path, want := range map[string]string{
		"/good": "", "/moved": "", "/loop": "more than 5 redirects", "/none": "404", "/large": "larger than 3 MiB",
	} {
		data, err := Fetch(t.Context(), s.URL+path)
		switch {
		case want == "" && (err != nil || string(data) != "kind: Pod\n"):
			t.Errorf("%s: %.20q, %v", path, data, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %d bytes, %v, want %s", path, len(data), err, want)
		}
	}
	for _, url := range []string{"", "file:///etc/passwd", "https://", "http://user:hidden@%zz/", strings.Replace(s.URL, "http://", "http://user:hidden@", 1) + "/none"} {
		if _, err := Fetch(t.Context(), url); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v", url, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fetch(ctx, s.URL+"/good"); err == nil {
		t.Error("a cancelled request")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
