package exposition

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPagesAreTheirOwn checks that a page contains no text of the previous page. Both pages use the same memory.
func TestPagesAreTheirOwn(t *testing.T) {
	serve := func(samples ...Sample) string {
		w := httptest.NewRecorder()
		Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), samples)
		return w.Body.String()
	}
	const want = "# HELP small is small\n# TYPE small gauge\nsmall 1\n"
	for range 3 { // each page reuses the memory of the previous one
		serve(Sample{Name: "first", Help: "comes first"}, Sample{Name: "last", Help: "comes last"})
		if got := serve(Sample{Name: "small", Help: "is small", Value: 1}); got != want {
			t.Fatalf("the page is %q", got)
		}
	}
}

// TestAcceptsGzip checks that a page is compressed only for a client that accepts gzip.
func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "deflate, gzip": true, "deflate,gzip ; q=0.5": true, "gzip;q=1.000": true, "gzip;q=0.001": true, "identity": false, "xgzip": false,
		"gzip;q=0": false, "gzip; q=0.0": false, "gzip;Q=0.000, deflate": false, "deflate;q=0, gzip": true, "gzip;level=9": true,
	} {
		if got := acceptsGzip(header); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
}
