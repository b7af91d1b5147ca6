package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestHostileSystemLogs checks that /logs/ opens no FIFO and no device, which a pod that mounts the host's log directory may have created,
// and that a browser runs no script of a pod's file.
func TestHostileSystemLogs(t *testing.T) {
	n, _ := servertest.Start(t)
	a := servertest.OpenAPI(t, n.Server)
	logs := func(name string) string { return filepath.Join(n.Server.Kubelet.SystemLogs, name) }
	err := errors.Join(os.MkdirAll(logs("fifo"), 0o755), os.MkdirAll(logs("device"), 0o755), os.MkdirAll(logs("page"), 0o755),
		unix.Mkfifo(logs("pipe"), 0o666), unix.Mkfifo(logs("fifo/index.html"), 0o666), os.Symlink("pipe", logs("link")),
		os.WriteFile(logs("page/index.html"), []byte("<script>"), 0o644), os.WriteFile(logs("page/syslog"), []byte("line\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	requests := []struct {
		path string
		code int
		want string
	}{
		{"pipe", 403, ""},
		{"link", 403, ""},
		{"fifo/", 200, `<a href="index.html">`},
		{"", 200, `<a href="pipe">`},
		{"page/", 200, "<script>"},
		{"page/syslog", 200, "line\n"},
		{"page/syslog/", 301, ""},
		{"page", 301, ""},
	}
	if err := errors.Join(unix.Mknod(logs("zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))),
		unix.Mknod(logs("device/index.html"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))); err != nil {
		t.Log("devices are not tested:", err)
	} else {
		requests = append(requests, requests[0], requests[2])
		requests[len(requests)-2].path, requests[len(requests)-1].path = "zero", "device/"
	}
	client := a.Client()
	for _, c := range requests {
		code, body := servertest.Fetch(t, client, "GET", "https://"+a.Addr+"/logs/"+c.path)
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("/logs/%s: %d %.300q, want %d %q", c.path, code, body, c.code, c.want)
		}
		resp, err := client.Get("https://" + a.Addr + "/logs/" + c.path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if h := resp.Header; h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("/logs/%s: the headers are %v", c.path, h)
		}
	}
}
