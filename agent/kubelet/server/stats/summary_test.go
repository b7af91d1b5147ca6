package stats_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestSummaryPosted checks that POST returns the same summary as GET. If the query or the form requests it, the summary contains only CPU
// and memory. A form that is too large is rejected.
func TestSummaryPosted(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	const path, only = "/stats/summary", "only_cpu_and_memory=true"
	for _, x := range []struct {
		method, path, form string
		code               int
		disks              bool
	}{
		{"GET", path, "", 200, true},
		{"GET", path + "?" + only, "", 200, false},
		{"GET", path, only, 200, true}, // the server ignores the body of a GET request
		{"POST", path, "", 200, true},
		{"POST", path + "?" + only, "", 200, false},
		{"POST", path, only, 200, false},
		{"POST", path, "only_cpu_and_memory=false", 200, true},
		{"POST", path + "/", only, 404, false},
		{"PUT", path, only, 405, false},
		{"POST", path, "x=" + strings.Repeat("x", 64<<10), 400, false},
		{"POST", path, "x=%zz", 400, false},
	} {
		req, err := http.NewRequest(x.method, "http://islet"+x.path, strings.NewReader(x.form))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := n.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		what, text := x.method+" "+x.path+" "+x.form[:min(len(x.form), 40)], string(b)
		if resp.StatusCode != x.code {
			t.Errorf("%s: %d %.200s, want %d", what, resp.StatusCode, text, x.code)
			continue
		}
		if x.code == 200 && !strings.Contains(text, `"workingSetBytes":3145728`) || strings.Contains(text, `"ephemeral-storage":{`) != x.disks {
			t.Errorf("%s: %s", what, text)
		}
		if x.code == 400 && !strings.Contains(text, "parse request") {
			t.Errorf("%s: %s", what, text)
		}
	}
}
