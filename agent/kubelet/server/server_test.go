package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"log/slog"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/socket"
)

func TestKubeletPaths(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	n.Log(t, "web-nginx", "one", "two", "three")
	waiting := n.Pod("wait", time.Now(), "app").DeepCopy()
	waiting.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "app", State: v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}
	n.Put(waiting)
	const log = "/containerLogs/default/web/nginx"
	for _, c := range []struct {
		method, path string
		code         int
		want         string // part of the response
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/pods", 200, `"kind":"PodList"`},
		{"GET", "/runningpods/", 200, `"name":"web"`},
		{"GET", "/stats/summary", 200, `"workingSetBytes":3145728`},
		{"GET", log, 200, "one\ntwo\nthree\n"},
		{"GET", log + "?tailLines=1", 200, "three\n"},
		{"GET", log + "?tailLines=-1", 422, "tailLines"},
		{"GET", log + "?tailLines=x", 400, "tailLines"},
		{"GET", log + "?limitBytes=0", 422, "limitBytes"},
		{"GET", log + "?follow=maybe", 400, "follow"},
		{"GET", log + "?sinceTime=yesterday", 400, "sinceTime"},
		{"GET", log + "?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422, "at most one"},
		{"GET", log + "?stream=Stderr", 200, ""},
		{"GET", log + "?stream=stdwhat", 422, "stream"},
		{"GET", log + "?previous=true", 400, "previous terminated container"},
		{"GET", log + "?tail=x", 400, "tailLines"},
		{"GET", log + "?tail=0", 200, ""},
		{"GET", log + "?tail=all", 200, "one"},
		{"GET", "/runningpods", 200, `"kind":"PodList"`},
		{"GET", "/pods/", 200, `"kind":"PodList"`},
		{"PUT", "/debug/flags/v", 405, "flags endpoint is disabled."},
		{"POST", "/checkpoint/default/none/nginx", 404, `pod "none" does not exist`},
		{"POST", "/checkpoint/default/web/none", 404, `container "none" not found`},
		{"POST", "/checkpoint/default/web/nginx?timeout=x", 404, "cannot parse value of timeout parameter"},
		{"POST", "/checkpoint/default/web/nginx?timeout=9&timeout=-1", 500, "checkpointing of default/web/nginx failed (the timeout is negative"},
		{"POST", "/checkpoint/default/wait/app", 500, "checkpointing of default/wait/app failed (container not found"},
		{"POST", "/checkpoint/default/web/nginx?timeout=9", 200, `{"items":["` + n.Server.Kubelet.Checkpoints + "/checkpoint-web_default-nginx-"},
		{"GET", "/containerLogs/default/web/none", 404, `container "none" not found in pod "web"`},
		{"GET", "/containerLogs/default/none/nginx", 404, `pod "none" does not exist`},
		{"GET", "/containerLogs/default/wait/app", 400, "waiting to start: trying and failing to pull image: no such image"},
		{"POST", "/run/default/web/nginx?cmd=ls+-l", 200, "ls,-l"},
		{"POST", "/exec/default/web/nginx?output=1", 400, "needs a command"},
		{"POST", "/exec/default/web/nginx?command=x", 400, "at least 1 of"},
		{"POST", "/exec/default/wait/app?command=x&output=1", 400, "not running: waiting, ImagePullBackOff"},
		{"POST", "/exec/default/web/nginx?command=x&output=1", 400, "Upgrade request required"},
		{"POST", "/portForward/default/none", 404, "does not exist"},
		{"GET", "/nothing", 404, ""},
		{"PUT", "/pods", 405, ""},
		{"POST", api.PathPods, 422, "no pod"},
		{"DELETE", api.PathPods + "/default/none", 404, "does not exist"},
		{"DELETE", api.PathPods + "/default/web.pi", 404, "does not exist"}, // the name of the mirror pod of web
		{"GET", "/containerLogs/default/web.pi/none", 404, `container "none" not found in pod "web"`},
		{"DELETE", api.PathPods + "/default/web?gracePeriodSeconds=-3", 400, "gracePeriodSeconds"},
	} {
		code, body := n.Do(t, c.method, c.path, "")
		if code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %.200s, want %d %q", c.method, c.path, code, body, c.code, c.want)
		}
	}
	if code, body := n.Do(t, "POST", api.PathPods, strings.Repeat("x", 9<<20)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a manifest too large: %d %s", code, body)
	}
}

// TestCheckpoint checks that only root may read the archive whose path the response contains, that the timeout is at least
// CheckpointTimeout, and that the path /checkpoint needs the feature gate.
func TestCheckpoint(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", time.Now(), "nginx")
	const path = "/checkpoint/default/web/nginx"
	a := servertest.OpenAPI(t, n.Server)
	var got struct{ Items []string }
	for query, timeout := range map[string]string{"": "120", "?timeout=9": "120", "?timeout=300": "300", "?timeout=9223372036854775807": "9223372036"} {
		code, body := servertest.Fetch(t, a.Client(), "POST", "https://"+a.Addr+path+query)
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || len(got.Items) != 1 {
			t.Fatalf("%s: %d %q, %v", query, code, body, err)
		}
		if b, err := os.ReadFile(got.Items[0]); err != nil || string(b) != "web-nginx "+timeout {
			t.Errorf("%s: %q, %v", query, b, err)
		}
	}
	if st, err := os.Stat(filepath.Dir(got.Items[0])); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
	b := servertest.OpenAPI(t, n.Variant(t, func(c *server.Config) { c.Kubelet.Checkpoints = "" }))
	if code, body := servertest.Fetch(t, b.Client(), "POST", "https://"+b.Addr+path); code != http.StatusNotFound {
		t.Errorf("without the gate: %d %q", code, body)
	}
}

func TestSocket(t *testing.T) {
	n, stop := servertest.Start(t)
	info, err := os.Stat(n.Socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	if _, err := socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}).ListenLocal(n.Socket, server.MaxLocal); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second agent: %v", err)
	}
	stop()
	if _, err := os.Stat(n.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	// A killed agent has left the socket's file behind.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.Socket})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	ln, err := socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}).ListenLocal(n.Socket, server.MaxLocal)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
}

// TestTooMany checks that connections beyond the limit are closed. New connections succeed after others are closed.
func TestTooMany(t *testing.T) {
	n, _ := servertest.Start(t)
	var held []net.Conn
	for range 200 {
		if c, err := n.Dial(t.Context(), "", ""); err == nil {
			held = append(held, c)
		}
	}
	last := held[len(held)-1]
	last.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := last.Read(make([]byte, 1)); err != io.EOF && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("the last connection was not refused: %v", err)
	}
	for _, c := range held {
		c.Close()
	}
	deadline := time.Now().Add(time.Minute)
	for {
		if resp, err := n.Client().Get("http://islet/healthz"); err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no new connection succeeds")
		}
		runtime.Gosched()
	}
}

func FuzzHTTP(f *testing.F) {
	n, _ := servertest.Start(f)
	n.Pod("web", time.Now(), "nginx")
	f.Add("GET", "/containerLogs/default/web/nginx?tailLines=9999999999", "")
	f.Add("POST", "/islet/v1/pods?origin=x", "kind: Pod")
	f.Add("GET", "/exec/default/web/nginx?command=echo&output=1", "")
	f.Add("DELETE", "/islet/v1/images?ref=%00", "")
	f.Add("GET", "/portForward/default/web/../..//?port=0", "")
	h := n.Server.Handler()
	f.Fuzz(func(t *testing.T, method, target, body string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
		if err != nil || req.URL.Path == "" {
			return
		}
		w := &recorder{header: http.Header{}}
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
		}()
		h.ServeHTTP(w, req)
		if w.code >= 500 && w.code != http.StatusInternalServerError && w.code != http.StatusNotImplemented {
			t.Errorf("%s %s: %d", method, target, w.code)
		}
	})
}

// recorder is an http.ResponseWriter that records the response.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
