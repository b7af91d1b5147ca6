package exposition

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPagesAreTheirOwn: a page has nothing of the one whose memory it gets.
func TestPagesAreTheirOwn(t *testing.T) {
	serve := func(samples ...Sample) string {
		w := httptest.NewRecorder()
		Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), samples)
		return w.Body.String()
	}
	const want = "# HELP small is small\n# TYPE small gauge\nsmall 1\n"
	for range 3 { // the memory of each page is that of the one before
		serve(Sample{Name: "first", Help: "comes first"}, Sample{Name: "last", Help: "comes last"})
		if got := serve(Sample{Name: "small", Help: "is small", Value: 1}); got != want {
			t.Fatalf("the page is %q", got)
		}
	}
}
