package page

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBrowser checks with a real browser that the page shows all data of a node with hostile pods and runs none of their scripts. If
// ISLET_PAGE_SHOTS names a directory, the test stores screenshots there, for a phone and a desktop, light and dark. `make test-page` and
// `make test` install the browser. With them, the test fails if the browser is missing.
func TestBrowser(t *testing.T) {
	browser, asked := os.LookupEnv("ISLET_BROWSER")
	switch {
	case !asked:
		t.Skip("make test-page runs this")
	case browser == "":
		t.Fatal("ISLET_BROWSER is empty: there is no browser. packaging/deps.sh page installs one")
	}
	p := newPage()
	m := &machine{}
	for i := range points - 10 {
		r, err := m.Read(t.Context())
		if err != nil {
			continue
		}
		r.At = time.Now().Add(-time.Duration(points-10-i) * Interval)
		p.history.add(r)
	}
	s := httptest.NewServer(p.localOnly())
	defer s.Close()
	browse := func(args ...string) string {
		t.Helper()
		args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + t.TempDir(), "--virtual-time-budget=4000", "--hide-scrollbars"}, args...)
		out, err := exec.CommandContext(t.Context(), browser, append(args, s.URL+"/")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	dom := browse("--dump-dom")
	for _, want := range []string{`data-shown="yes"`, "<title>board-7", "Needs attention", "CrashLoopBackOff", "4 of 5 ready", "stands alone", "&lt;img src=x onerror=", "<svg", `class="b"`, "648 MiB", "data-shown"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page has no %s:\n%s", want, dom)
		}
	}
	for _, bad := range []string{"<img", "<title>pwned", "NaN", "undefined"} {
		if strings.Contains(dom, bad) {
			t.Errorf("the page has %s:\n%s", bad, dom)
		}
	}
	dir := os.Getenv("ISLET_PAGE_SHOTS")
	if dir == "" {
		return
	}
	for name, size := range map[string]string{"phone": "390,1500", "desktop": "1280,1100"} {
		for theme, flag := range map[string]string{"light": "--blink-settings=preferredColorScheme=1", "dark": "--blink-settings=preferredColorScheme=0"} {
			browse("--screenshot="+filepath.Join(dir, name+"-"+theme+".png"), "--window-size="+size, flag)
		}
	}
}
