package image

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// maxParallelImagePulls bounds how many images are pulled at once, and is reached;
// serializeImagePulls makes it one.
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
		going, most, full := map[string]bool{}, 0, make(chan struct{})
		hub.mu.Lock()
		hub.before = func(_ http.ResponseWriter, r *http.Request) bool {
			name, _, blob := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/blobs/")
			if !blob {
				return false
			}
			mu.Lock()
			going[name] = true
			if len(going) > most {
				if most = len(going); most == tt.want {
					close(full)
				}
			}
			mu.Unlock()
			<-full // once as many go on as may
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
				if delete(going, fmt.Sprint("demo", i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most != tt.want {
			t.Errorf("serial %v, at most %d: %d at once", tt.serial, tt.max, most)
		}
	}
}
