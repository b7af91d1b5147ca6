package download

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPost checks that a document arrives whole, and that a server that does not answer does not hold Post for ever. A server that reads
// slowly gets the whole document, if it reads something within MaxSilence.
func TestPost(t *testing.T) {
	const chunk = 128 << 10
	document := strings.Repeat("some bytes", chunk)
	for name, c := range map[string]struct {
		read, answer time.Duration // the time before each chunk is read, and before the answer
		works        bool
	}{
		"fast":      {0, 0, true},
		"slow":      {MaxSilence * 2 / 3, 0, true},
		"no read":   {2 * MaxSilence, 0, false},
		"no answer": {0, 2 * MaxSilence, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := ""
				client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					for b := make([]byte, chunk); ; {
						time.Sleep(c.read) // in the bubble's time
						n, err := r.Body.Read(b)
						got += string(b[:n])
						if err == io.EOF {
							break
						}
						if err != nil {
							return nil, err
						}
						if r.Context().Err() != nil {
							return nil, r.Context().Err()
						}
					}
					select {
					case <-r.Context().Done():
						return nil, r.Context().Err()
					case <-time.After(c.answer):
					}
					return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
				})}
				err := Post(t.Context(), client, "https://x/", "text/plain", []byte(document))
				if c.works && (err != nil || got != document) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				if !c.works && !errors.As(err, new(UnreachableError)) {
					t.Error(err)
				}
			})
		})
	}
}

// TestPostToServer checks a request to a real server, which closes the body of the request before it answers.
func TestPostToServer(t *testing.T) {
	document := strings.Repeat("some bytes", 1<<16)
	status := http.StatusAccepted
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != document || r.ContentLength != int64(len(document)) || r.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%d bytes, %v, %v", len(got), r.Header, err)
		}
		w.WriteHeader(status)
	}))
	defer s.Close()
	if err := Post(t.Context(), NewClient(time.Now), s.URL, "text/plain", []byte(document)); err != nil {
		t.Error(err)
	}
	status = http.StatusTooManyRequests
	err := Post(t.Context(), NewClient(time.Now), s.URL, "text/plain", []byte(document))
	if wrong := (StatusError{}); !errors.As(err, &wrong) || wrong.Code != status {
		t.Error(err)
	}
}
