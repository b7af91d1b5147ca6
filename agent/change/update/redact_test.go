package update

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSecretsOfURL checks that no error contains the user, the password or the query of an archive's URL.
func TestSecretsOfURL(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter){
		"refused": func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) },
		"cut off": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "islet")
		},
		"invalid": func(w http.ResponseWriter) { _, _ = io.WriteString(w, "no release") },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/islet.tar.gz"+Suffix || r.URL.Query().Get("token") != "secret" {
					t.Errorf("request for %s", r.URL)
				}
				answer(w)
			}))
			defer server.Close()
			from := strings.Replace(server.URL, "http://", "http://secret:secret@", 1) + "/islet.tar.gz?token=secret"
			s, err := newSource(from, server.Client())
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.readRelease(t.Context())
			if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "/islet.tar.gz") {
				t.Error(err)
			}
		})
	}
	_, err := newSource("http://secret:secret@example.com/islet.tar.gz?token=secret", nil)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
