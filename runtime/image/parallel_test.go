package image

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// TestMaxParallel checks that maxParallelImagePulls pulls run at the same time, and never more. With serializeImagePulls only one pull runs
// at a time. All pulls that run wait for the registry, and then no further pull may start.
func TestMaxParallel(t *testing.T) {
	for _, tt := range []struct {
		serial    bool
		max, want int
	}{{true, 3, 1}, {false, 3, 3}, {false, 1, 1}} {
		hub := newServer(t, false)
		const images = 6
		for i := range images {
			hub.push(t, fmt.Sprintf("demo%d:1", i), imageOf(t, "1000", layerOf(t, file{name: "own", body: fmt.Sprint(i)})))
		}
		s := newService(t, func(c *Config) { c.CertsDir, c.SerializePulls, c.MaxParallel = plainDir(t, hub.URL), tt.serial, tt.max })
		var mu sync.Mutex
		running, full, more := map[string]bool{}, make(chan struct{}), false
		hub.set(func(h *server) {
			h.before = func(_ http.ResponseWriter, r *http.Request) bool {
				name, _, blob := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/blobs/")
				if !blob {
					return false
				}
				mu.Lock()
				if running[name] = true; len(running) == tt.want {
					select {
					case <-full:
					default:
						more = s.pulls.TryAcquire(1)
						close(full)
					}
				}
				mu.Unlock()
				<-full // waits until the maximum number of pulls is running
				return false
			}
		})
		var wg sync.WaitGroup
		for i := range images {
			wg.Go(func() {
				if _, err := pull(t.Context(), s, fmt.Sprintf("registry.example/demo%d:1", i), nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if more || len(running) != images {
			t.Errorf("serial %v, maximum %d: a pull could start beside %d: %v; %d images", tt.serial, tt.max, tt.want, more, len(running))
		}
	}
}

// TestPullRate checks that the rate limit applies to pulls that download data. Other pulls are not limited.
func TestPullRate(t *testing.T) {
	hub := newServer(t, false)
	for _, name := range []string{"first", "second"} {
		hub.push(t, name+":1", imageOf(t, "1000", layerOf(t, file{name: "own", body: name})))
	}
	s := newService(t, func(c *Config) { c.CertsDir, c.PullsPerSecond, c.PullBurst = plainDir(t, hub.URL), 5, 1 })
	if s.rate.Limit() != 5 || s.rate.Burst() != 1 {
		t.Errorf("rate %v, burst %d", s.rate.Limit(), s.rate.Burst())
	}
	s.rate.SetLimit(rate.Every(time.Hour))
	for range 3 {
		if _, err := pull(t.Context(), s, "registry.example/first:1", nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := pull(ctx, s, "registry.example/second:1", nil); err == nil ||
		!strings.Contains(err.Error(), "would exceed context deadline") {
		t.Errorf("the next pull does not wait: %v", err)
	}
}
