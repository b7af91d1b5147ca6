package server_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/server/servertest"
)

// TestLogErrors: an error is never part of a log. Before the first line it is the status of the
// answer; after it the answer breaks off.
func TestLogErrors(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("none", time.Now(), "nginx")
	n.Pod("web", time.Now(), "nginx")
	n.Log(t, "web-nginx", "first")
	dir := filepath.Join(n.Dir, "web-nginx")
	line, err := os.ReadFile(filepath.Join(dir, "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"0.log.20261126-000001": line, "0.log.20261126-000002.gz": []byte("this is not gzip")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, follow := range []string{"", "?follow=true"} {
		if code, body := do(t, n, "GET", "/containerLogs/default/none/nginx"+follow, ""); code != 404 || !strings.Contains(body, "has no log") {
			t.Errorf("%s: a log that is not there: %d %q", follow, code, body)
		}
		resp, err := client(n).Get("http://islet/containerLogs/default/web/nginx" + follow)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || string(body) != "first\n" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: a log with a file that cannot be read: %d %q, %v", follow, resp.StatusCode, body, err)
		}
		if follow == "" {
			continue
		}
		if code, body := do(t, n, "GET", "/containerLogs/default/web/nginx?follow=true&tailLines=2", ""); code != 500 || !strings.Contains(body, "gzip") {
			t.Errorf("%s: nothing could be read: %d %q", follow, code, body)
		}
	}
}
