package feed

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
)

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

// A source is an Applier whose bundle and errors a test sets.
type source struct {
	mu     sync.Mutex
	tag    string
	number int64
	err    error
	digest digest.Digest
	asked  []time.Time
	tried  int // bundles that were read
}

func (s *source) ApplyFollowed(_ context.Context, _ string, last Seen) (Seen, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	seen := Seen{Validators: poll.Validators{ETag: s.tag}}
	if s.tag != "" && last.ETag == s.tag {
		return seen, ErrSame
	}
	if errors.As(s.err, new(download.UnreachableError)) {
		return Seen{}, s.err
	}
	s.tried++
	seen.Name, seen.Number, seen.Digest = "kiosk", s.number, s.digest
	return seen, s.err
}

func (s *source) set(tag string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tag, s.err, s.asked, s.tried = tag, err, nil, 0
}

// gaps returns the times between the requests, and the number of bundles that were read.
func (s *source) gaps() (gaps []time.Duration, tried int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 1; i < len(s.asked); i++ {
		gaps = append(gaps, s.asked[i].Sub(s.asked[i-1]))
	}
	return gaps, s.tried
}

const every = 20 * time.Minute

// follow runs a Follower until the returned function is called.
func follow(t *testing.T, file, from string, s *source) (*Follower, func()) {
	return followEvery(t, file, from, every, s)
}

func followEvery(t *testing.T, file, from string, every time.Duration, s Applier) (*Follower, func()) {
	f := NewFollower(FollowConfig{Source: from, Every: every, File: file, Now: time.Now, Applier: s, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.Run(ctx); close(done) }()
	return f, func() { cancel(); <-done }
}

// TestFollower checks the pace of requests and how often a bundle is read: once if it was tried, at growing intervals if it was refused,
// and soon after the link or the server failed, but not before the time that the server requests.
func TestFollower(t *testing.T) {
	for name, c := range map[string]struct {
		tag         string
		err         error
		least, most time.Duration // between two requests
		tried       [2]int        // in two days
		problem     bool
	}{
		"tried":                 {"a", nil, every * 9 / 10, every, [2]int{1, 1}, false},
		"not greater":           {"a", ErrDone, every * 9 / 10, every, [2]int{1, 1}, false},
		"refused":               {"a", errors.New("no signature"), every * 9 / 10, every, [2]int{3, 30}, true},
		"refused without a tag": {"", errors.New("no signature"), every * 9 / 10, every, [2]int{100, 200}, true},
		"busy":                  {"a", ErrBusy, firstRetry, firstRetry, [2]int{2000, 3000}, true},
		"no link":               {"a", download.UnreachableError{Err: errors.New("no route")}, 0, every, [2]int{0, 0}, true},
		"overloaded": {"a", download.UnreachableError{Err: errors.New("503"), RetryAfter: 2 * time.Hour}, 2 * time.Hour,
			2*time.Hour + every, [2]int{0, 0}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{tag: c.tag, err: c.err}
				f, stop := follow(t, filepath.Join(t.TempDir(), "state"), "https://user:secret@example.com/k.tar", s)
				time.Sleep(48 * time.Hour)
				status := f.Status()
				stop()
				gaps, tried := s.gaps()
				for i, gap := range gaps {
					if gap < c.least || gap > c.most {
						t.Errorf("request %d is %s after the last one", i+1, gap)
					}
				}
				if tried < c.tried[0] || tried > c.tried[1] || len(gaps) < 10 {
					t.Errorf("%d requests, %d bundles were read", len(gaps), tried)
				}
				if (status.Problem != "") != c.problem || status.Checked.IsZero() || status.Source != "https://example.com/k.tar" {
					t.Errorf("%+v", status)
				}
			})
		})
	}
}

// TestFollowerWhileBusy checks that a bundle that must be read to find out that the node is busy is read at growing intervals, and soon
// again after the node was free.
func TestFollowerWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{tag: "a", err: ErrBusy, digest: digest.FromString("a")}
		_, stop := follow(t, filepath.Join(t.TempDir(), "state"), "https://example.com/k.tar", s)
		defer stop()
		time.Sleep(48 * time.Hour)
		gaps, tried := s.gaps()
		if len(gaps) < 6 || gaps[0] != firstRetry || gaps[1] != 2*firstRetry || gaps[len(gaps)-1] != every || tried > 160 {
			t.Errorf("%d bundles were read, gaps %v", tried, gaps)
		}
		s.set("b", nil)
		time.Sleep(2 * every)
		s.set("c", ErrBusy)
		time.Sleep(2 * every)
		if gaps, _ := s.gaps(); len(gaps) < 3 || gaps[0] != firstRetry {
			t.Errorf("after the node was free: gaps %v", gaps)
		}
	})
}

// TestFollowerSeesAnother checks that a bundle that replaces a refused one is read at the next request.
func TestFollowerSeesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{tag: "a", err: errors.New("no signature")}
		f, stop := follow(t, filepath.Join(t.TempDir(), "state"), "oci://example.com/k:1", s)
		defer stop()
		time.Sleep(24 * time.Hour)
		s.set("b", nil)
		time.Sleep(every + time.Second)
		if _, tried := s.gaps(); tried != 1 || f.Status().Problem != "" {
			t.Errorf("%d bundles were read, %+v", tried, f.Status())
		}
	})
}

// TestReboots checks that the pace and the last bundle are kept over reboots, and not if the source is another one or the clock is wrong.
func TestReboots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "state")
		s := &source{tag: "a"}
		for range 7 { // a node that reboots four times in an interval
			_, stop := follow(t, file, "https://example.com/k.tar", s)
			time.Sleep(every / 4)
			stop()
		}
		if gaps, tried := s.gaps(); len(gaps) != 1 || tried != 1 || gaps[0] < every*9/10 {
			t.Errorf("gaps %v, %d bundles were read", gaps, tried)
		}
		_, stop := follow(t, file, "https://example.com/other.tar", s)
		time.Sleep(time.Minute)
		stop()
		if _, tried := s.gaps(); tried != 2 {
			t.Errorf("another source: %d bundles were read", tried)
		}
		s.set("b", nil)
		f := NewFollower(FollowConfig{Source: "https://example.com/other.tar", Every: every, File: file, Applier: s,
			Now: func() time.Time { return time.Unix(0, 0) }, Log: slog.New(slog.DiscardHandler)})
		if wait := f.begin(); wait > every {
			t.Errorf("with a wrong clock, the first request is after %s", wait)
		}
	})
}

// A lateLink is a source whose first request after each start fails with an error.
type lateLink struct {
	source
	first  error
	failed bool // since the start
}

func (l *lateLink) ApplyFollowed(ctx context.Context, from string, last Seen) (Seen, error) {
	if !l.failed {
		l.failed = true
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked = append(l.asked, time.Now())
		return Seen{}, l.first
	}
	return l.source.ApplyFollowed(ctx, from, last)
}

// TestRebootsWithoutLink checks that a node which is switched on six times a day, and whose first request each time fails or meets a busy
// node, still keeps the pace: it makes this request and one more a day.
func TestRebootsWithoutLink(t *testing.T) {
	for name, err := range map[string]error{
		"no link": download.UnreachableError{Err: errors.New("no route")},
		"busy":    ErrBusy,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "state")
				s := &lateLink{source: source{tag: "a"}, first: err}
				const days = 10
				for range 6 * days {
					s.failed = false
					_, stop := followEvery(t, file, "https://example.com/k.tar", 24*time.Hour, s)
					time.Sleep(4 * time.Hour)
					stop()
				}
				// A request is due after 21.6 hours at the earliest, and the node may be switched off before it is repeated.
				if n := len(s.asked); n < days || n > 3*(days+2) || s.tried != 1 {
					t.Errorf("%d requests in %d days, %d bundles were read", n, days, s.tried)
				}
			})
		})
	}
}

// TestRebootsWhileOverloaded checks that the time that a server requests with Retry-After is respected after a reboot, also if the request
// was not the first one since the start, and is shorter than the interval.
func TestRebootsWhileOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, wait = 24 * time.Hour, 6 * time.Hour
		file := filepath.Join(t.TempDir(), "state")
		s := &source{tag: "a"}
		_, stop := followEvery(t, file, "https://example.com/k.tar", every, s)
		time.Sleep(time.Hour)
		s.set("", download.UnreachableError{Err: errors.New("503"), RetryAfter: wait})
		time.Sleep(every)
		stop()
		if len(s.asked) != 1 {
			t.Fatalf("%d requests", len(s.asked))
		}
		for range 12 {
			_, stop := followEvery(t, file, "https://example.com/k.tar", every, s)
			time.Sleep(time.Hour)
			stop()
		}
		if gaps, _ := s.gaps(); len(gaps) == 0 || gaps[0] < wait {
			t.Errorf("gaps %v", gaps)
		}
	})
}

// TestStartsTogether checks that nodes whose stored time is past, such as after a power cut, spread their first requests over a
// tenth of the interval, and over an hour at most. A node that is on for a few minutes at a time may make one too.
func TestStartsTogether(t *testing.T) {
	for every, spread := range map[time.Duration]time.Duration{2 * time.Hour: 12 * time.Minute, 30 * 24 * time.Hour: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state")
			_, stop := followEvery(t, file, "https://example.com/k.tar", every, &source{tag: "a"})
			time.Sleep(time.Minute)
			stop()
			time.Sleep(2 * every)
			first, last := every, time.Duration(0)
			for range 1000 {
				f := NewFollower(FollowConfig{Source: "https://example.com/k.tar", Every: every, File: file, Now: time.Now,
					Log: slog.New(slog.DiscardHandler)})
				wait := f.begin()
				first, last = min(first, wait), max(last, wait)
			}
			if first > spread/20 || last < spread/2 || last > spread {
				t.Errorf("every %s: 1000 nodes make a request after %s to %s", every, first, last)
			}
		})
	}
}

// TestRequestSize counts the bytes of the requests that a node sends while the bundle is the same, and its connections.
func TestRequestSize(t *testing.T) {
	s := newSite(t, artefact(t))
	for name, path := range map[string]string{"tar": "/kiosk.tar", "directory": "/kiosk/"} {
		o := opener(t, filepath.Join(t.TempDir(), "download"), nil)
		client := download.NewPollClient(time.Now, time.Minute)
		o.client = client
		s.set(func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`) // as long as those of object stores
			if r.Header.Get("If-None-Match") == "" {
				return false
			}
			w.WriteHeader(http.StatusNotModified)
			return true
		})
		from := s.URL + path
		l, v, err := o.Open(t.Context(), Request{From: from})
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		conns, before := s.conns.Load(), s.in.Load()
		const polls = 5
		for range polls {
			if _, _, err := o.Open(t.Context(), Request{From: from, Last: v}); !errors.Is(err, ErrSame) {
				t.Fatal(err)
			}
		}
		if size := (s.in.Load() - before) / polls; size > 150 || s.conns.Load() != conns {
			t.Errorf("%s: a request has %d bytes, %d new connections", name, size, s.conns.Load()-conns)
		}
		client.CloseIdleConnections()
	}
}

// TestHandshakes counts the handshakes of a node that polls by TLS.
func TestHandshakes(t *testing.T) {
	var mu sync.Mutex
	conns := map[string]bool{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		conns[r.RemoteAddr] = true
		mu.Unlock()
		if r.Proto != "HTTP/1.1" {
			t.Error(r.Proto)
		}
		w.WriteHeader(http.StatusNotModified)
	}))
	defer server.Close()
	o := opener(t, t.TempDir(), nil)
	client := download.NewPollClient(time.Now, time.Minute)
	client.Transport.(*http.Transport).TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	o.client = client
	defer client.CloseIdleConnections()
	for range 5 {
		if _, _, err := o.Open(t.Context(), Request{From: server.URL + "/k.tar", Last: poll.Validators{ETag: "x"}}); !errors.Is(err, ErrSame) {
			t.Fatal(err)
		}
	}
	if len(conns) != 1 {
		t.Errorf("%d handshakes", len(conns))
	}
}
