package page

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// testBrowser returns a function that opens a URL in a real browser. The function passes its further arguments to the browser, and returns
// the browser's output. `make test-page` and `make test` install the browser. The tests fail if it is missing afterwards.
func testBrowser(t *testing.T) func(url string, args ...string) string {
	browser, asked := os.LookupEnv("ISLET_BROWSER")
	switch {
	case !asked:
		t.Skip("make test-page runs this")
	case browser == "":
		t.Fatal("ISLET_BROWSER is empty: there is no browser. packaging/deps.sh page installs one")
	}
	return func(url string, args ...string) string {
		t.Helper()
		args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + t.TempDir(), "--hide-scrollbars"}, args...)
		out, err := exec.CommandContext(t.Context(), browser, append(args, url)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
}

// browsedPage returns a page of a node with the readings of an hour.
func browsedPage(t *testing.T, n nodetest) *Page {
	p := New(Config{Port: 1, API: n.handler, Machine: &machine{}, Log: newPage().c.Log})
	m := &machine{}
	for i := range points - 10 {
		r, err := m.Read(t.Context())
		if err != nil {
			continue
		}
		r.At = time.Now().Add(-time.Duration(points-10-i) * Interval)
		p.history.add(r)
	}
	return p
}

// A sandboxed response is one for which the browser runs no scripts.
type sandboxed struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (s sandboxed) WriteHeader(code int) {
	s.Header().Add("Content-Security-Policy", "sandbox")
	s.ResponseWriter.WriteHeader(code)
}

// TestBrowser opens the pages of a node with hostile pods in a real browser, with and without JavaScript. The pages must show all data, and
// no script of a pod may run.
func TestBrowser(t *testing.T) {
	browse := testBrowser(t)
	p := browsedPage(t, nodetest{}).localOnly()
	for _, script := range []bool{true, false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !script { // a sandbox switches JavaScript off
				w = sandboxed{w}
			}
			p.ServeHTTP(w, r)
		}))
		defer s.Close()
		for path, wanted := range map[string][]string{
			"/": {"<title>board-7", "Needs attention", "CrashLoopBackOff", "3 of 5 ready", "stands alone", "&lt;img src=x onerror=", "<svg", `class="b"`, "648 MiB", "under-voltage",
				"exit code 137"},
			"/?events=warnings": {"warnings only", "BackOff"},
			"/network":          {"10.88.0.0/16", ":8080", "wlan0"},
			"/pod?namespace=default&pod=sensor-reader&container=main": {"Log of main", "xxxx", "before the last restart", "&lt;img src=x"},
		} {
			dom := browse(s.URL+path, "--dump-dom", "--virtual-time-budget=25000")
			if script {
				wanted = append(wanted, `data-shown="yes"`)
			} else if strings.Contains(dom, "data-shown") {
				t.Errorf("%s has run the script", path)
			}
			for _, want := range wanted {
				if !strings.Contains(dom, want) {
					t.Errorf("%s with script %v has no %s:\n%s", path, script, want, dom)
				}
			}
			for _, bad := range []string{"<img", "<title>pwned", "NaN", "undefined", `id="lost" role="alert">`} {
				if strings.Contains(dom, bad) {
					t.Errorf("%s with script %v has %s:\n%s", path, script, bad, dom)
				}
			}
		}
	}
}

// focusScript moves the keyboard's focus to a pod. Later, when the page has been refreshed, it records which element has the focus.
const focusScript = `
document.querySelector("tr[data-key=u0] a").focus();
setTimeout(() => { document.documentElement.dataset.focus = document.activeElement.textContent; }, 15000);
`

// TestBrowserRefresh checks that a page in a real browser shows each change of the node. The keyboard's focus stays on its pod when the
// pod's row moves. After the agent has stopped, the page shows the age of its contents.
func TestBrowserRefresh(t *testing.T) {
	browse := testBrowser(t)
	var asked atomic.Int32
	p := browsedPage(t, nodetest{kind: true})
	other := browsedPage(t, nodetest{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/page.js":
			p.localOnly().ServeHTTP(w, r)
			io.WriteString(w, focusScript)
		case r.URL.Path != "/": // page.css
			p.localOnly().ServeHTTP(w, r)
		case asked.Add(1) == 1:
			p.localOnly().ServeHTTP(w, r)
		case asked.Load() == 2:
			other.localOnly().ServeHTTP(w, r)
		default: // the agent has stopped
			panic(http.ErrAbortHandler)
		}
	}))
	defer s.Close()
	dom := browse(s.URL+"/", "--dump-dom", "--virtual-time-budget=75000")
	for _, want := range []string{"&lt;img src=x onerror=", "sensor-reader", `class="old"`, `data-focus="camera"`, "The agent does not answer", " s ago"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page has no %s:\n%s", want, dom)
		}
	}
	for _, bad := range []string{`id="lost" role="alert" hidden`, ">web<", "<img"} {
		if strings.Contains(dom, bad) {
			t.Errorf("the page has %s:\n%s", bad, dom)
		}
	}
	if n := asked.Load(); n < 4 || n > 20 {
		t.Errorf("%d requests in 75 s", n)
	}
}

// TestBrowserPictures stores pictures of the pages for a phone and a desktop, light and dark, in the directory ISLET_PAGE_SHOTS.
func TestBrowserPictures(t *testing.T) {
	browse := testBrowser(t)
	dir := os.Getenv("ISLET_PAGE_SHOTS")
	if dir == "" {
		t.Skip("ISLET_PAGE_SHOTS is not set")
	}
	s := httptest.NewServer(browsedPage(t, nodetest{kind: true}).localOnly())
	defer s.Close()
	for page, path := range map[string]string{"overview": "/", "network": "/network", "pod": "/pod?namespace=default&pod=sensor-reader&container=main"} {
		for screen, size := range map[string]string{"360": "360,1900", "1400": "1400,1000"} {
			for theme, flag := range map[string]string{"light": "--blink-settings=preferredColorScheme=1", "dark": "--blink-settings=preferredColorScheme=0"} {
				file := filepath.Join(dir, strings.Join([]string{page, screen, theme}, "-")+".png")
				browse(s.URL+path, "--screenshot="+file, "--window-size="+size, "--virtual-time-budget=4000", flag)
				if n := shrink(t, file); n < 5<<10 || n > 150<<10 {
					t.Errorf("%s has %d bytes", file, n)
				}
			}
		}
	}
}

// shrink reduces a picture to its 200 most frequent colours, and returns its size in bytes.
func shrink(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	full, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	frequency := map[color.Color]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			frequency[full.At(x, y)]++
		}
	}
	colors := color.Palette(slices.SortedFunc(maps.Keys(frequency), func(a, b color.Color) int { return frequency[b] - frequency[a] }))
	small := image.NewPaletted(full.Bounds(), colors[:min(len(colors), 200)])
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return out.Len()
}
