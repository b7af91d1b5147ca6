package logs_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// TestLogErrors checks how a client learns of an error. An error before the first line sets the status of the response. After a later
// error, the last line contains the error and the response ends incompletely. Clients that support trailers get this error in a trailer.
func TestLogErrors(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("none", time.Now(), "nginx")
	n.Pod("fifo", time.Now(), "nginx")
	n.Pod("web", time.Now(), "nginx")
	n.Log(t, "web-nginx", "first")
	n.Runtime.Exit("web-nginx")
	dir := filepath.Join(n.Dir, "web-nginx")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "0.log.20261126-000002.gz"), []byte("this is not gzip"), 0o600),
		os.Mkdir(filepath.Join(n.Dir, "fifo-nginx"), 0o700), syscall.Mkfifo(filepath.Join(n.Dir, "fifo-nginx", "0.log"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	const reason = "lines are missing because 0.log.20261126-000002.gz is damaged: gzip: invalid header"
	for _, query := range []string{"?", "?follow=true", "?tailLines=2", "?follow=true&tailLines=2"} {
		if code, body := n.Do(t, "GET", "/containerLogs/default/none/nginx"+query, ""); code != 404 || !strings.Contains(body, "has no log") {
			t.Errorf("%s: a missing log: %d %q", query, code, body)
		}
		if code, body := n.Do(t, "GET", "/containerLogs/default/fifo/nginx"+query, ""); code != 500 || !strings.Contains(body, "regular") {
			t.Errorf("%s: an unreadable log: %d %q", query, code, body)
		}
		if body, end, err := logOf(t, n, query, false).rest(); body != "first\nislet: the log is not complete: "+reason+"\n" ||
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: a damaged log: %q, %q, %v", query, body, end, err)
		}
		if body, end, err := logOf(t, n, query, true).rest(); body != "first\n" || end != reason || err != nil {
			t.Errorf("%s: a damaged log with trailers: %q, %q, %v", query, body, end, err)
		}
		body, _, _ := logOf(t, n, query+"&timestamps=true", false).rest()
		_, last, _ := strings.Cut(body, "\n")
		stamp, text, _ := strings.Cut(last, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || text != "islet: the log is not complete: "+reason+"\n" {
			t.Errorf("%s: a damaged log with times ends with %q: %v", query, last, err)
		}
	}
}

// TestLogStopping checks that the client of a followed log can distinguish the agent's end from the log's end. Before the response ends, an
// incomplete line is terminated.
func TestLogStopping(t *testing.T) {
	for _, trailers := range []bool{false, true} {
		n, stop := servertest.Start(t)
		n.Pod("web", time.Now(), "nginx")
		n.Log(t, "web-nginx", "first")
		log := filepath.Join(n.Dir, "web-nginx", "0.log")
		if err := os.WriteFile(log, []byte("2026-11-21T02:03:04Z stdout P prompt> \n"), 0o600); err != nil {
			t.Fatal(err)
		}
		a := logOf(t, n, "?follow=true", trailers)
		begin := make([]byte, len("prompt> "))
		if _, err := io.ReadFull(a.Body, begin); err != nil || string(begin) != "prompt> " {
			t.Fatalf("%q, %v", begin, err)
		}
		stop()
		want := "\nislet: the log is not complete: the agent is stopping; the container and its log continue\n"
		if trailers {
			want = ""
		}
		if body, end, err := a.rest(); body != want || end != "" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("trailers %v: %q, %q, %v", trailers, body, end, err)
		}
	}
}

// An openResponse is a response whose body has not been read.
type openResponse struct{ *http.Response }

func logOf(t *testing.T, n *servertest.Node, query string, trailers bool) openResponse {
	t.Helper()
	req, err := http.NewRequest("GET", "http://islet/containerLogs/default/web/nginx"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if trailers {
		req.Header.Set(api.TrailerError, "trailer")
	}
	resp, err := n.Client().Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return openResponse{resp}
}

// This helper reads the body to its end.
func (a openResponse) rest() (body, trailer string, err error) {
	b, err := io.ReadAll(a.Body)
	return string(b), a.Trailer.Get(api.TrailerError), err
}
