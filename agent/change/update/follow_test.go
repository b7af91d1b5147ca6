package update

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/internal/download"
)

// A roundTripper is an http.RoundTripper that returns a response without a server.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// A writer is an io.Writer that calls a function for each Write.
type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// TestFollowPoorLink checks that a fetch is retried within minutes, at growing intervals, after a failure of the link or the server. An
// invalid archive is fetched again only at the next regular check. A repeated error is logged only once.
func TestFollowPoorLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, key := stager(t)
		file := archive(t, t.TempDir(), "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "good"), key)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := os.ReadFile(file + Suffix)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var logged bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return logged.Write(b)
		}), nil))
		mode, asked := "no link", 0
		s.Client = &http.Client{Transport: roundTripper(func(q *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			w := httptest.NewRecorder()
			isRelease := strings.HasSuffix(q.URL.Path, Suffix)
			if isRelease {
				asked++
			}
			switch {
			case mode == "no link":
				return nil, errors.New("no route to host")
			case mode == "busy server":
				w.WriteHeader(http.StatusServiceUnavailable)
			case isRelease:
				w.Write(signed)
			case mode == "changed":
				w.Write(append([]byte{whole[0] ^ 1}, whole[1:]...))
			default:
				w.Write(whole)
			}
			a := w.Result()
			if mode == "torn" && !isRelease {
				a.Body = http.MaxBytesReader(nil, a.Body, 1000)
			}
			return a, nil
		})}
		offered := 0
		u := New(Config{
			Stager: *s, Follow: "https://example.com/islet.tar.gz", Every: 24 * time.Hour, StagedPath: func() string { return "" },
			CheckOffer: func(bool) error {
				mu.Lock()
				defer mu.Unlock()
				switch mode {
				case "busy":
					return errors.New("a trial is under way")
				case "unknown keys":
					return trial.ErrUnknownKeys
				}
				return nil
			},
			Offer: func(*StagedProgram, string, bool) (string, bool, error) {
				mu.Lock()
				defer mu.Unlock()
				offered++
				return "id", true, nil
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		var done chan error
		for _, x := range []struct {
			mode           string
			lasts          time.Duration
			least, most    int // number of reads of the release
			lines, offered int
		}{
			{"no link", 10 * time.Minute, 4, 60, 1, 0},
			{"busy server", 24 * time.Hour, 4, 60, 1, 0},
			{"torn", 48 * time.Hour, 2, 60, 1, 0},
			{"changed", 48 * time.Hour, 2, 4, 1, 0},
			{"busy", 48 * time.Hour, 0, 0, 0, 0},
			{"unknown keys", 48 * time.Hour, 0, 0, 1, 0},
			{"well", 48 * time.Hour, 1, 4, 1, 1},
		} {
			mu.Lock()
			mode = x.mode
			mu.Unlock()
			if done == nil { // the first read happens in the first mode
				done = make(chan error, 1)
				go func() { done <- u.Run(ctx) }()
			}
			time.Sleep(x.lasts)
			synctest.Wait()
			mu.Lock()
			lines := strings.Count(logged.String(), "level=WARN") + strings.Count(logged.String(), " id=")
			if asked < x.least || asked > x.most || min(offered, 1) != x.offered || min(lines, 1) != x.lines || lines > 2 {
				t.Errorf("%s: %d reads, %d offers, and the log\n%s", x.mode, asked, offered, &logged)
			}
			if p := u.Status().Problem; (x.mode == "well") != (p == "") || x.mode == "unknown keys" && p != trial.ErrUnknownKeys.Error() {
				t.Errorf("%s: the problem %q", x.mode, p)
			}
			asked, offered = 0, 0
			logged.Reset()
			mu.Unlock()
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestClock checks that the update client verifies certificates at the time of the given clock.
func TestClock(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for name, x := range map[string]struct {
		now time.Time
		bad string
	}{
		"now":      {time.Now(), "404"},
		"too late": {server.Certificate().NotAfter.Add(time.Hour), "certificate has expired or is not yet valid"},
	} {
		c := download.NewClient(func() time.Time { return x.now })
		c.Transport.(*http.Transport).TLSClientConfig.RootCAs = roots
		src, err := newSource(server.URL+"/a", c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = src.readRelease(t.Context())
		if !errors.As(err, new(download.UnreachableError)) || !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v", name, err)
		}
		c.CloseIdleConnections()
	}
}
