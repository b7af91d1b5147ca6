package node

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/machine"
)

// A shipper reads a container's log as log shippers do. It checks the path every 200 ms, parses 10 MB per second, and reads an open file
// to its end before it opens the path again.
type shipper struct {
	path  string
	begun time.Time
	last  time.Time
	spent int // number of bytes read
	lines int
	f     *os.File
	in    *bufio.Reader
}

const (
	shipperSpeed = 10_000_000 // bytes per second
	shipperPause = 200 * time.Millisecond
)

// checkShipped reads what there is, and reports whether it read to the end of the log.
func (s *shipper) checkShipped(t *testing.T) (atEnd bool) {
	t.Helper()
	if time.Since(s.last) < shipperPause {
		return false
	}
	s.last = time.Now()
	if s.begun.IsZero() {
		s.begun = s.last
	}
	for s.spent < int(time.Since(s.begun).Seconds()*shipperSpeed) {
		if s.f != nil {
			line, err := s.in.ReadBytes('\n')
			s.spent += len(line)
			if err == nil {
				s.lines++
				continue
			}
		}
		now, err := os.Stat(s.path)
		if err != nil {
			return false
		}
		if s.f != nil {
			if own, err := s.f.Stat(); err != nil || os.SameFile(own, now) {
				return err == nil
			}
			s.f.Close()
		}
		if s.f, err = os.Open(s.path); err != nil {
			t.Fatal(err)
		}
		s.in = bufio.NewReader(s.f)
	}
	return false
}

// TestShipper checks that a log shipper and islet logs -f both receive a burst of 300,000 lines (57 MB of log) completely.
func TestShipper(t *testing.T) {
	t.Parallel()
	const lines = 300_000
	m := bootMachine(t)
	// On a disk with little free space the logs would be removed earlier. The disk of the test host may have little.
	m.Run("mkdir", "-p", m.Disk+"/logs")
	m.Run("mount", "-t", "tmpfs", "-o", "size=512m", "logs", m.Disk+"/logs")
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy))
	// The pod reads from a FIFO, because the burst must not begin before the shipper has opened the log. A shipper that finds the log
	// after its first rotation never reads the rotated file.
	m.Write("data/dir", "")
	burst := filepath.Join(m.Disk, "data/lines")
	if err := unix.Mkfifo(burst, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(burst, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	line := strings.Repeat("x", 150) + "\n"
	if _, err := w.WriteString(line); err != nil {
		t.Fatal(err)
	}
	m.Write("manifests/talks.yaml", manifest("talks",
		fmt.Sprintf("    volumeMounts: [{name: v, mountPath: /v}]\n  restartPolicy: Never\n  volumes: [{name: v, hostPath: {path: %s/data}}]\n",
			m.Disk), "cat", "/v/lines"))
	m.StartAgent()
	s := &shipper{}
	defer func() { s.f.Close() }()
	m.Await("the log", func() bool {
		found, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s/logs/*talks*/c/0.log", m.Pid(), m.Disk))
		if err != nil || len(found) == 0 {
			return false
		}
		s.path = found[0]
		return true
	})
	var out string
	code := -1
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for { // the agent reports a running container with a delay
			if out, code = m.Try("logs", "-f", "talks-edge"); !strings.Contains(out[:min(len(out), 200)], "is waiting to start") {
				return
			}
		}
	}()
	m.Await("the shipper to have opened the log", func() bool {
		s.checkShipped(t)
		return s.lines == 1
	})
	written := make(chan error, 1)
	go func() {
		_, err := w.WriteString(strings.Repeat(line, lines-1))
		written <- errors.Join(err, w.Close())
	}()
	m.Await("the shipper to have all there is", func() bool {
		ended := false
		select {
		case <-followed:
			ended = true
		default:
		}
		return s.checkShipped(t) && ended || s.lines >= lines
	})
	if s.lines != lines {
		t.Errorf("the shipper has %d lines of %d", s.lines, lines)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	<-followed
	if got := strings.Count(out, "\n"); got != lines || code != 0 {
		t.Errorf("islet logs -f has %d lines of %d, and ends with %d: %.300s", got, lines, code, out)
	}
}

// TestLogsOfRemovedPod checks that a log shipper can read the last lines of a removed pod, at the log's path and by its link. A pod that
// returns with the same UID has a new log. After the agent was killed, its next start removes the logs.
func TestLogsOfRemovedPod(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy+"containerLogMonitorInterval: 1h\n"))
	m.StartAgent()
	links := filepath.Join(m.Disk, "state", "container-logs")
	for i := range 2 {
		m.Write("manifests/one.yaml", manifest("one", "", "count", "100ms"))
		m.WaitReady("one-edge")
		out := "" // a container without probes is ready before its program has written its first line
		m.Await("the first line of the log", func() bool {
			out = m.Islet("logs", "one-edge")
			return out != ""
		})
		if !strings.HasPrefix(out, "0\n") || strings.Contains(out, "end") {
			t.Errorf("pod %d has the log %.300q", i, out)
		}
		m.Remove("manifests/one.yaml")
		m.WaitPods("the pod to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 0 })
		for _, pattern := range []string{m.Disk + "/logs/*_one-edge_*/c/0.log", links + "/one-edge_default_c-*.log"} {
			found, err := filepath.Glob(pattern)
			if err != nil || len(found) != 1 {
				t.Fatalf("%s of pod %d: %q, %v", pattern, i, found, err)
			}
			if text, err := os.ReadFile(found[0]); err != nil || !strings.HasSuffix(string(text), " F end\n") {
				t.Errorf("%s of pod %d: %v, %.300s", pattern, i, err, text[max(len(text)-100, 0):])
			}
		}
	}
	m.Kill()
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy+"containerLogMonitorInterval: 3s\n"))
	m.StartAgent()
	m.Await("the logs to be removed", func() bool { return len(m.Files(m.Disk+"/logs"))+len(m.Files(links)) == 0 })
}
