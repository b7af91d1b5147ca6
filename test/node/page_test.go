package node

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestStatusPageElsewhere checks that the port of the kubelet API serves the status page with pods and logs. Only clients with a trusted
// certificate may read the page.
func TestStatusPageElsewhere(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	sign := func(name string, args ...string) {
		m.Run("openssl", append([]string{"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
			"-subj", "/CN=" + name, "-keyout", m.Disk + "/" + name + ".key", "-out", m.Disk + "/" + name + ".crt"}, args...)...)
	}
	sign("ca")
	sign("other")
	for _, name := range []string{"ca", "other"} {
		sign(name+"-client", "-addext", "extendedKeyUsage=clientAuth", "-CA", m.Disk+"/"+name+".crt", "-CAkey", m.Disk+"/"+name+".key")
	}
	m.Write("kubelet.yaml",
		fmt.Sprintf("%scgroupRoot: %s\npodLogsDir: %s/logs\nauthentication: {x509: {clientCAFile: %[3]s/ca.crt}}\n", servedHead, m.Cgroup,
			m.Disk))
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nstatusPagePort: 10247\n",
		m.Disk))
	m.Write("manifests/plain.yaml", manifest("plain", "", "count", "1h"))
	m.StartAgent()
	m.WaitReady("plain-edge")
	m.Await("a line in the log", func() bool { return m.Islet("logs", "plain-edge") == "0\n" })
	for client, want := range map[string]int{"": http.StatusUnauthorized, "other-client": http.StatusUnauthorized, "ca-client": http.StatusOK} {
		conf := &tls.Config{InsecureSkipVerify: true} // the node's certificate is self-signed
		if client != "" {
			pair, err := tls.LoadX509KeyPair(m.Disk+"/"+client+".crt", m.Disk+"/"+client+".key")
			if err != nil {
				t.Fatal(err)
			}
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		c := http.Client{Transport: &http.Transport{DialContext: m.Dial, TLSClientConfig: conf, DisableKeepAlives: true}}
		for path, text := range map[string]string{"": `<script src="page.js"`, "network": "plain-edge", "pod?namespace=default&pod=plain-edge": "/manifests/plain.yaml", "page.js": "fetch(", "page.css": "{", "data": `"name":"plain-edge"`, "log?namespace=default&pod=plain-edge&container=c": "0\n"} {
			r, err := c.Get("https://127.0.0.1:10250/page/" + path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || r.StatusCode != want || strings.Contains(string(b), text) != (want == http.StatusOK) {
				t.Errorf("client %q, path %q: %s %v\n%s", client, path, r.Status, err, b)
			}
			if policy := r.Header.Get("Content-Security-Policy"); want == http.StatusOK && !strings.HasPrefix(policy, "default-src 'none'") {
				t.Errorf("%q has the policy %q", path, policy)
			}
		}
	}
}

// TestStatusPage checks that the configured port on localhost serves the status page with pods and logs. A request with another host name
// must be rejected.
func TestStatusPage(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nstatusPagePort: 10247\n",
		m.Disk))
	m.Write("manifests/plain.yaml", manifest("plain", "", "sleep"))
	m.StartAgent()
	m.WaitReady("plain-edge")
	const script = `exec 3<>/dev/tcp/127.0.0.1/10247 && printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "$0" "$1" >&3 && cat <&3`
	get := func(path, host string) string {
		t.Helper()
		return m.Run("bash", "-c", script, path, host)
	}
	if page := get("/", "localhost:10247"); !strings.HasPrefix(page, "HTTP/1.1 200") || !strings.Contains(page, "page.js") ||
		!strings.Contains(page, "Content-Security-Policy: default-src 'none'") {
		t.Errorf("the page:\n%s", page)
	}
	for path, wanted := range map[string][]string{
		"/": {"plain-edge", "from file", "1 of 1 ready", "Clock", "the node stands alone", "Started", ">CPU<"}, "/network": {"The pod network", "built in", "Addresses of pods"},
		"/pod?namespace=default&pod=plain-edge": {"/manifests/plain.yaml", "Log of c", "Started", "localhost/podtool:test"},
	} {
		page := get(path, "localhost:10247")
		for _, want := range wanted {
			if !strings.Contains(page, want) {
				t.Errorf("%s has no %q:\n%s", path, want, page)
			}
		}
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
		t.Errorf("request with another host name:\n%s", other)
	}
	first := regexp.MustCompile(`"history":\[{"at":"[^"]+"`).FindString(data)
	m.Kill()
	m.StartAgent()
	m.Await("the page after the restart", func() bool {
		out, _ := m.Command("bash", "-c", script, "/data", "localhost:10247").Output() // an error means that the page does not listen yet
		data = string(out)
		return strings.HasPrefix(data, "HTTP/1.1 200")
	})
	if first == "" || !strings.Contains(data, first) {
		t.Errorf("after a kill, the history does not begin with %s:\n%s", first, data)
	}
}
