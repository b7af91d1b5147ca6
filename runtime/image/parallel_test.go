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
// at a time.
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
		var mu sync.Mutex
		active, most, full := map[string]bool{}, 0, make(chan struct{})
		hub.mu.Lock()
		hub.before = func(_ http.ResponseWriter, r *http.Request) bool {
			name, _, blob := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/blobs/")
			if !blob {
				return false
			}
			mu.Lock()
			active[name] = true
			if len(active) > most {
				if most = len(active); most == tt.want {
					close(full)
				}
			}
			mu.Unlock()
			<-full // waits until the maximum number of pulls is running
			return false
		}
		hub.mu.Unlock()
		s := newService(t, func(c *Config) { c.CertsDir, c.SerializePulls, c.MaxParallel = plainDir(t, hub.URL), tt.serial, tt.max })
		var wg sync.WaitGroup
		for i := range images {
			wg.Go(func() {
				_, err := pull(t.Context(), s, fmt.Sprintf("registry.example/demo%d:1", i), nil)
				mu.Lock()
				defer mu.Unlock()
				delete(active, fmt.Sprint("demo", i))
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most != tt.want {
			t.Errorf("serial %v, maximum %d: %d concurrent pulls", tt.serial, tt.max, most)
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
