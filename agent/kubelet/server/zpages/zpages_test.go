package zpages_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

func TestZPages(t *testing.T) {
	var levels []int
	n, _ := servertest.Start(t, func(c *server.Config) {
		c.Kubelet.Flags = []string{"node-ip=10.0.0.1", "v=2"}
		c.KubeVersion, c.Version = "v1.36.3", "0.9.0"
		c.Kubelet.SetLevel = func(v int) { levels = append(levels, v) }
	})
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string // part of the response
	}{
		{"PUT", "/debug/flags/v", "4", 200, "successfully set klog.logging.verbosity to 4"},
		{"PUT", "/debug/flags/v", "-1", 400, "failed set klog.logging.verbosity"},
		{"PUT", "/debug/flags/v", "loud", 400, "failed set klog.logging.verbosity"},
		{"PUT", "/debug/flags/v", strings.Repeat("9", 1<<20), 400, "error reading"},
		{"GET", "/debug/flags/v", "", 406, "unsupported http method"},
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/metrics/slis", "", 200, `kubernetes_healthcheck{name="ping",type="healthz"} 1`},
		{"GET", "/metrics/slis", "", 200, `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 3`},
	} {
		code, body := n.Do(t, c.method, c.path, c.body)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %.9s: %d %s, want %d %q", c.method, c.path, c.body, code, body, c.code, c.want)
		}
	}
	if len(levels) != 1 || levels[0] != 4 {
		t.Errorf("levels %v were set", levels)
	}
	// The pages are equal to those of k8s.io/apiserver 0.36, except for times and versions.
	const warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n"
	changes := regexp.MustCompile(`(?m)^(Started|Up|Go version): .+$`)
	for path, want := range map[string]string{
		"/flagz": "\nkubelet flagz\n" + warning + "node-ip=10.0.0.1\nv=2\n",
		"/statusz": "\nkubelet statusz\n" + warning + "\nStarted: x\nUp: x\nGo version: x\nBinary version: 1.36.3\nEmulation version: 1.36\n" +
			"Paths: /attach /checkpoint /configz /containerLogs /debug /exec /flagz /healthz /islet /logs /metrics /pods /portForward /run /runningpods /stats\n" +
			"islet version: 0.9.0\n",
	} {
		code, body := n.Do(t, "GET", path, "")
		if got := changes.ReplaceAllString(body, "$1: x"); code != 200 || got != want {
			t.Errorf("%s: %d\n%s\nwant\n%s", path, code, got, want)
		}
	}
	req, err := http.NewRequest("GET", "http://islet/statusz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := n.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotAcceptable {
		t.Errorf("JSON of a page for people: %d", resp.StatusCode)
	}
}
