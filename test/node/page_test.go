package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestStatusPage: on localhost of the machine the page is there when it is configured, for who
// asks by that name, with the pods and their logs.
func TestStatusPage(t *testing.T) {
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nstatusPagePort: 10247\n", m.Disk))
	m.Write("manifests/plain.yaml", manifest("plain", "", "sleep"))
	m.StartAgent()
	m.WaitReady("plain-edge")
	get := func(path, host string) string {
		t.Helper()
		const script = `exec 3<>/dev/tcp/127.0.0.1/10247 && printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$0" "$1" >&3 && cat <&3`
		return m.Run("bash", "-c", script, path, host)
	}
	if page := get("/", "localhost:10247"); !strings.HasPrefix(page, "HTTP/1.1 200") || !strings.Contains(page, "page.js") || !strings.Contains(page, "Content-Security-Policy: default-src 'none'") {
		t.Errorf("the page:\n%s", page)
	}
	data := get("/data", "localhost:10247")
	for _, want := range []string{`"name":"plain-edge"`, `"ready":true`, `"node":"edge"`, `"history":[{`, `"counts":"1 of 1 ready"`, `"reason":"Started"`} {
		if !strings.Contains(data, want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
	if log := get("/log?namespace=default&pod=plain-edge&container=c", "localhost:10247"); !strings.HasPrefix(log, "HTTP/1.1 200") {
		t.Errorf("the log:\n%s", log)
	}
	if other := get("/data", "rebound.example"); !strings.HasPrefix(other, "HTTP/1.1 421") {
		t.Errorf("by another name:\n%s", other)
	}
}
