package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/islet-edge/islet/runtime/cri"
)

func pull(ctx context.Context, s *Service, ref string, auth *api.AuthConfig) (string, error) {
	r, err := s.PullImage(ctx, &api.PullImageRequest{Image: &api.ImageSpec{Image: ref}, Auth: auth})
	return r.GetImageRef(), err
}

func TestPull(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls %v", tls), func(t *testing.T) {
			img := small(t)
			hub := newServer(t, tls)
			sum := hub.push(t, "demo:1", img)
			dir := plainDir(t, hub.URL)
			if tls {
				dir = certsDir(t, hub.URL)
				writeCA(t, dir, hub)
			}
			changes := 0
			s := newService(t, func(c *Config) { c.CertsDir, c.OnChange = dir, func() { changes++ } })
			var last cri.ImportProgress
			r, err := s.PullWithProgress(t.Context(), &api.PullImageRequest{Image: &api.ImageSpec{Image: "registry.example/demo:1"}}, func(p cri.ImportProgress) { last = p })
			if err != nil {
				t.Fatal(err)
			}
			if r.ImageRef != imageID(t, img) || last.Status != "done" || last.Current != last.Total || last.Total == 0 {
				t.Fatalf("pulled %s, last progress %+v", r.ImageRef, last)
			}
			wantImage(t, s, "registry.example/demo:1", imageID(t, img))
			wantImage(t, s, "registry.example/demo@"+sum, imageID(t, img))
			wantFiles(t, s, "registry.example/demo:1", map[string]string{"hello": "hello\n"}, "gone")

			// A repeated pull sends one request and writes nothing.
			hub.set(func(*server) {})
			if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
				t.Fatal(err)
			}
			if got := hub.requests(""); len(got) != 1 {
				t.Errorf("the second pull requested %q", got)
			}
			if changes != 1 {
				t.Errorf("%d changes, want 1", changes)
			}
			if _, err := pull(t.Context(), s, "registry.example/demo@"+sum, nil); err != nil {
				t.Fatal(err)
			}
			collect(t, s)
			if got := left(t, s); count(got, "lease ")+count(got, "download ") > 0 || count(got, "blob ") != 2 {
				t.Errorf("left over: %q", got)
			}
		})
	}
}

// TestPullResumes checks that an interrupted download is resumed. The same pull, the next pull, or a pull after the process was killed
// resumes it.
func TestPullResumes(t *testing.T) {
	img := imageOf(t, "", layerOf(t, file{name: "data", body: noise(7, 3<<20)}))
	hub := newServer(t, false)
	hub.push(t, "demo:1", img)
	certs := plainDir(t, hub.URL)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	const ref = "registry.example/demo:1"
	ranges := func() (out []string) {
		for _, r := range hub.requests("GET /v2/demo/blobs/" + layer.String()) {
			_, rng, _ := strings.Cut(r, "bytes=")
			out = append(out, rng)
		}
		return out
	}
	breakOff := func(after int) func(string) int {
		return func(blob string) int {
			if blob == layer.String() {
				return after
			}
			return 1 << 30
		}
	}

	t.Run("within a pull", func(t *testing.T) {
		s := newService(t, func(c *Config) { c.CertsDir = certs })
		hub.set(func(h *server) { h.cut = breakOff(1 << 20) })
		if _, err := pull(t.Context(), s, ref, nil); err != nil {
			t.Fatal(err)
		}
		if got := ranges(); len(got) < 2 || got[0] != "" || !strings.HasPrefix(got[1], "1048576-") {
			t.Fatalf("requested ranges: %q", got)
		}
	})

	dir := t.TempDir()
	d := openDaemon(t, dir)
	s := serviceOn(t, d, dir, func(c *Config) { c.CertsDir = certs })
	t.Run("the next pull", func(t *testing.T) {
		// After the first interruption, the registry returns errors.
		broken := false
		hub.set(func(h *server) {
			h.cut = func(blob string) int {
				broken = broken || blob == layer.String()
				return breakOff(1 << 20)(blob)
			}
			h.before = func(w http.ResponseWriter, r *http.Request) bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				if broken {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				return broken
			}
		})
		_, err := pull(t.Context(), s, ref, nil)
		if err == nil || !strings.HasPrefix(err.Error(), crierrors.ErrRegistryUnavailable.Error()) {
			t.Fatalf("pull from a broken registry: %v", err)
		}
		// The second interruption is caused by the end of the agent.
		ctx, kill := context.WithCancel(t.Context())
		hub.set(func(h *server) {
			h.before = nil
			h.cut = func(blob string) int {
				if blob == layer.String() {
					h.before = func(http.ResponseWriter, *http.Request) bool { kill(); panic(http.ErrAbortHandler) }
				}
				return breakOff(1 << 20)(blob)
			}
		})
		if _, err := pull(ctx, s, ref, nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled pull: %v", err)
		}
		if got := ranges(); got[0] != "1048576-" {
			t.Fatalf("requested ranges: %q", got)
		}
	})

	t.Run("the next process", func(t *testing.T) {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = newDaemon(t, dir)
		s := serviceOn(t, d, dir, func(c *Config) { c.CertsDir = certs })
		for _, now := range []time.Time{time.Now(), time.Unix(60, 0)} { // the clock of a board without a battery begins in 1970
			if err := s.sweepLeases(withNamespace(t.Context()), now); err != nil {
				t.Fatal(err)
			}
		}
		hub.set(func(h *server) { h.before, h.cut = nil, nil })
		if _, err := pull(t.Context(), s, ref, nil); err != nil {
			t.Fatal(err)
		}
		if got := ranges(); len(got) != 1 || got[0] != "2097152-" {
			t.Fatalf("requested ranges: %q", got)
		}
		if got := left(t, s); count(got, "lease ")+count(got, "download ") > 0 {
			t.Errorf("left over: %q", got)
		}
	})
}

// TestPullDamagedPartial checks a partial download that a power failure has damaged. The next pull detects the damage and downloads the
// layer again.
func TestPullDamagedPartial(t *testing.T) {
	img := imageOf(t, "", layerOf(t, file{name: "data", body: noise(8, 2<<20)}))
	hub := newServer(t, false)
	hub.push(t, "demo:1", img)
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.c.Client.ContentStore().Writer(withNamespace(t.Context()), content.WithRef("layer-"+layer.String()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, noise(9, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
		t.Fatal(err)
	}
}

// This pattern matches the Range header of a request for the rest of a blob.
var resumes = regexp.MustCompile(`bytes=[1-9][0-9]*-$`)

// TestPullStalls checks a registry that stops sending data. The download is cancelled, and the received bytes are kept.
func TestPullStalls(t *testing.T) {
	img := imageOf(t, "", layerOf(t, file{name: "data", body: noise(6, 2<<20)}))
	hub := newServer(t, false)
	hub.push(t, "demo:1", img)
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	s.stall = 2 * time.Second // long enough to receive some data on a busy machine
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	hub.set(func(h *server) {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || path.Base(r.URL.Path) != layer.String() {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(h.sizes[layer.String()]))
			body, err := layers[0].Compressed()
			if err != nil {
				t.Error(err)
			}
			io.CopyN(w, body, 1<<20)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		}
	})
	var active string
	req := &api.PullImageRequest{Image: &api.ImageSpec{Image: "registry.example/demo:1"}}
	_, err = s.PullWithProgress(t.Context(), req, func(cri.ImportProgress) { active = fmt.Sprint(s.ImportsInProgress()) })
	if want := "registry.example/demo:1 downloading 1"; !strings.Contains(active, want) || len(s.ImportsInProgress()) > 0 {
		t.Errorf("during the pull Going returned %s, now it returns %v", active, s.ImportsInProgress())
	}
	if !errors.Is(err, errStalled) || !strings.HasPrefix(err.Error(), crierrors.ErrRegistryUnavailable.Error()) {
		t.Fatalf("pull from a silent registry: %v", err)
	}
	hub.set(func(h *server) { h.before = nil })
	s.stall = time.Minute // a pause of a busy machine must not count as a silent registry
	if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
		t.Fatal(err)
	}
	// The speed of the machine determines how many bytes were received.
	if got := hub.requests("GET /v2/demo/blobs/" + layer.String()); len(got) != 1 || !resumes.MatchString(got[0]) {
		t.Errorf("requested %q", got)
	}
}

func TestPullAuth(t *testing.T) {
	hub := newServer(t, false)
	hub.push(t, "demo:1", small(t))
	hub.set(func(h *server) {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/token" {
				r.ParseForm()
				user, pass, _ := r.BasicAuth()
				if r.Form.Get("refresh_token") == "identity" || r.Form.Get("password") == "secret" || user == "ann" && pass == "secret" {
					io.WriteString(w, `{"token":"ticket","access_token":"ticket"}`)
				} else {
					w.WriteHeader(http.StatusUnauthorized)
				}
				return true
			}
			if r.Header.Get("Authorization") == "Bearer ticket" {
				return false
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+h.URL+`/token",service="hub"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	})
	host := hub.host(t)
	for _, c := range []struct {
		name string
		auth *api.AuthConfig
		ok   bool
	}{
		{"none", nil, false},
		{"password", &api.AuthConfig{Username: "ann", Password: "secret"}, true},
		{"wrong password", &api.AuthConfig{Username: "ann", Password: "guess"}, false},
		{"identity token", &api.AuthConfig{IdentityToken: "identity"}, true},
		{"registry token", &api.AuthConfig{RegistryToken: "ticket"}, true},
		{"old registry token", &api.AuthConfig{RegistryToken: "used"}, false},
		{"auth", &api.AuthConfig{Auth: "YW5uOnNlY3JldA=="}, true},
		{"this server", &api.AuthConfig{ServerAddress: "http://" + host + "/v1/", Username: "ann", Password: "secret"}, true},
		{"other server", &api.AuthConfig{ServerAddress: "other.example", Username: "ann", Password: "secret"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
			_, err := pull(t.Context(), s, "registry.example/demo:1", c.auth)
			if c.ok != (err == nil) {
				t.Fatal(err)
			}
			if err != nil && (errors.Is(err, crierrors.ErrRegistryUnavailable) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// TestPullBasicAuth checks a registry that itself requests a user name and a password, without a token server. The pull must send both. The
// registry redirects a tag to the digest of the manifest, as Kubernetes' test registry does.
func TestPullBasicAuth(t *testing.T) {
	hub := newServer(t, false)
	manifest := hub.push(t, "demo:1", small(t))
	hub.set(func(h *server) {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			switch user, pass, _ := r.BasicAuth(); {
			case user != "ann" || pass != "secret":
				w.Header().Set("WWW-Authenticate", `Basic realm="Restricted"`)
				w.WriteHeader(http.StatusUnauthorized)
			case strings.HasSuffix(r.URL.Path, "/manifests/1"):
				w.Header().Set("Location", strings.TrimSuffix(r.URL.Path, "1")+manifest)
				w.WriteHeader(http.StatusTemporaryRedirect)
			default:
				return false
			}
			return true
		}
	})
	for name, image := range map[string]string{"without configuration": hub.host(t) + "/demo:1", "configured": "registry.example/demo:1"} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(c *Config) {
				if name == "configured" {
					c.CertsDir = plainDir(t, hub.URL)
				}
			})
			if _, err := pull(t.Context(), s, image, &api.AuthConfig{Username: "ann", Password: "secret"}); err != nil {
				t.Error(err)
			}
			if _, err := pull(t.Context(), s, image, &api.AuthConfig{Username: "ann", Password: "guess"}); err == nil {
				t.Error("a wrong password was accepted")
			}
		})
	}
}

func TestPullMirrors(t *testing.T) {
	dead := newServer(t, false)
	dead.Close()
	empty, hub := newServer(t, false), newServer(t, false)
	hub.push(t, "demo:1", small(t))
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, dead.URL, empty.URL, hub.URL) })
	if _, err := pull(t.Context(), s, "registry.example/demo:1", nil); err != nil {
		t.Fatal(err)
	}
	if len(empty.requests("")) == 0 {
		t.Error("the first reachable mirror received no request")
	}
	_, err := pull(t.Context(), s, "registry.example/absent:1", nil)
	if !errdefs.IsNotFound(err) {
		t.Errorf("absent image: %v", err)
	}
	down := newService(t, func(c *Config) { c.CertsDir = plainDir(t, dead.URL) })
	_, err = pull(t.Context(), down, "registry.example/demo:1", nil)
	if err == nil || !strings.HasPrefix(err.Error(), crierrors.ErrRegistryUnavailable.Error()) {
		t.Errorf("dead registry: %v", err)
	}
	if got := left(t, down); len(got) > 0 {
		t.Errorf("left over: %q", got)
	}
}

// TestPullMovedTag checks a tag that has moved to a new image. The old image is kept under its digest.
func TestPullMovedTag(t *testing.T) {
	hub := newServer(t, false)
	first, second := small(t), imageOf(t, "1000", layerOf(t, file{name: "new", body: "2"}))
	sum := hub.push(t, "demo:latest", first)
	s := newService(t, func(c *Config) { c.CertsDir = plainDir(t, hub.URL) })
	if _, err := pull(t.Context(), s, "registry.example/demo", nil); err != nil {
		t.Fatal(err)
	}
	hub.push(t, "demo:latest", second)
	if _, err := pull(t.Context(), s, "registry.example/demo", nil); err != nil {
		t.Fatal(err)
	}
	wantImage(t, s, "registry.example/demo", imageID(t, second))
	wantImage(t, s, "registry.example/demo@"+sum, imageID(t, first))
	r, err := s.ListImages(t.Context(), &api.ListImagesRequest{})
	if err != nil || len(r.Images) != 2 {
		t.Fatalf("images %v, %v", r, err)
	}
}

// TestPullParallel checks concurrent pulls of images that have layers in common.
func TestPullParallel(t *testing.T) {
	hub := newServer(t, false)
	base := layerOf(t, file{name: "base", body: noise(3, 1<<20)})
	var ids []string
	for i := range 4 {
		img := imageOf(t, "1000", base, layerOf(t, file{name: "own", body: fmt.Sprint(i)}))
		hub.push(t, fmt.Sprintf("demo:%d", i), img)
		ids = append(ids, imageID(t, img))
	}
	for _, serial := range []bool{false, true} {
		s := newService(t, func(c *Config) { c.CertsDir, c.SerializePulls = plainDir(t, hub.URL), serial })
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				id, err := pull(t.Context(), s, fmt.Sprintf("registry.example/demo:%d", i%4), nil)
				if err != nil || id != ids[i%4] {
					t.Errorf("pull %d: %s, %v", i, id, err)
				}
			})
		}
		wg.Wait()
		got := left(t, s)
		if count(got, "snapshot ") != 5 || count(got, "lease ")+count(got, "download ") > 0 {
			t.Errorf("containerd has %q", got)
		}
		slices.Sort(got)
	}
}
