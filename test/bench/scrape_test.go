package bench

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

// scraped contains the pages of a full scrape in their order.
var scraped = []string{"/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis", "/stats/summary"}

const (
	scrapes     = 20
	scrapeEvery = 3 * time.Second // longer than the agent keeps its measurements
	scrapePods  = 100
	scrapeCPU   = 25 * time.Millisecond // goal for all pages
	scrapeHeap  = 1 << 20               // goal for the heap growth after all scrapes, in bytes
)

// TestScrape measures the cost of scrapes for an agent with a hundred pods. The scrapes use TLS on port 10250 and compression, like
// Prometheus.
func TestScrape(t *testing.T) {
	figures.SkipUnlessBench(t)
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	m.Write("kubelet.yaml",
		m.Kubelet("authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"+machine.Roomy))
	for i := range scrapePods {
		m.Write(fmt.Sprintf("manifests/p%03d.yaml", i), pod(i))
	}
	agent := m.StartAgent()
	m.WaitPods("all pods to be ready", func(pods map[string]machine.Pod) bool {
		for _, p := range pods {
			if !p.Ready() {
				return false
			}
		}
		return len(pods) == scrapePods
	})
	c := client(t, agent.Pid)
	pause(5 * time.Second) // the agent collects garbage

	before := idleShare(t, agent.Pid)
	pages := map[string]page{}
	for _, path := range scraped { // creates the caches
		pages[path] = c.get(t, path)
	}
	profile := os.Getenv("ISLET_PROFILE") // directory of the profiles
	if profile != "" {
		c.save(filepath.Join(profile, "allocs.before"), "/debug/pprof/allocs")
		go c.save(filepath.Join(profile, "cpu"), fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(scrapes*scrapeEvery/time.Second)))
	}
	live, made := c.heap(t)
	var used time.Duration
	each := map[string]time.Duration{}
	for range scrapes {
		pause(scrapeEvery)
		for _, path := range scraped {
			began := threadTime(t, agent.Pid)
			c.get(t, path)
			took := threadTime(t, agent.Pid) - began
			used, each[path] = used+took, each[path]+took
		}
	}
	liveAfter, madeAfter := c.heap(t)
	if profile != "" {
		c.save(filepath.Join(profile, "allocs"), "/debug/pprof/allocs")
	}
	after := idleShare(t, agent.Pid)
	retained := max(0, liveAfter-live)
	f := &figures.Table{}
	f.Add(fmt.Sprintf("CPU of the agent for a full scrape, %d pods", scrapePods), millis(used/scrapes), millis(scrapeCPU),
		fmt.Sprintf("over %d scrapes", scrapes))
	for _, path := range scraped {
		f.Add("of it "+path, millis(each[path]/scrapes), "",
			fmt.Sprintf("%.1f KiB on the wire, %.0f KiB of text", float64(pages[path].wire)/1024, float64(pages[path].text)/1024))
	}
	f.Add(fmt.Sprintf("heap still in use after %d scrapes, more than before", scrapes),
		fmt.Sprintf("%.2f MiB", float64(retained)/(1<<20)), fmt.Sprintf("%d MiB", scrapeHeap>>20), "")
	f.Add("allocated for a full scrape", fmt.Sprintf("%.2f MiB", float64(madeAfter-made)/scrapes/(1<<20)), "", "")
	f.Add("idle CPU of one core, before the scrapes", percent(before), "0.5 %", fmt.Sprintf("over %v", idleSpan))
	f.Add("idle CPU of one core, after them", percent(after), "0.5 %", fmt.Sprintf("over %v", idleSpan))
	fmt.Print("\n", f)
	if used/scrapes > scrapeCPU {
		t.Errorf("a full scrape needs %v of CPU time", used/scrapes)
	}
	if retained > scrapeHeap {
		t.Errorf("the heap grew by %d bytes after the scrapes", retained)
	}
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

const idleSpan = 30 * time.Second

// idleShare returns the share of a core that a process uses without requests.
func idleShare(t *testing.T, pid int) float64 {
	t.Helper()
	begun := threadTime(t, pid)
	pause(idleSpan)
	return (threadTime(t, pid) - begun).Seconds() / idleSpan.Seconds()
}

func percent(share float64) string { return fmt.Sprintf("%.3f %%", 100*share) }

// threadTime returns the CPU time of all threads of a process in nanoseconds.
func threadTime(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has exited
		}
		n, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}

// A scraper is a client of a machine's port 10250.
type scraper struct{ http.Client }

// client returns a scraper that connects from the network namespace of a process.
func client(t *testing.T, pid int) *scraper {
	dial := func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked, so the thread exits with the goroutine
			var ns *os.File
			if ns, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
				return
			}
			defer ns.Close()
			if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
				conn, err = new(net.Dialer).DialContext(ctx, network, addr)
			}
		}()
		<-done
		return conn, err
	}
	s := &scraper{http.Client{Transport: &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableCompression: true}}}
	t.Cleanup(s.CloseIdleConnections)
	return s
}

// A page contains two sizes of a metrics page in bytes: the size on the wire, and the size of its text.
type page struct{ wire, text int }

func (s *scraper) ask(path string, compressed bool) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodGet, "https://127.0.0.1:10250"+path, nil)
	if err != nil {
		return nil, err
	}
	if compressed {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	return s.Do(r)
}

func (s *scraper) get(t *testing.T, path string) page {
	t.Helper()
	r, err := s.ask(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", path, r.Status, err)
	}
	return page{wire: len(b), text: unpacked(t, r.Header.Get("Content-Encoding"), b)}
}

// heap returns the bytes in use after a garbage collection, and the bytes that were ever allocated.
func (s *scraper) heap(t *testing.T) (live, made int64) {
	t.Helper()
	s.save(os.DevNull, "/debug/pprof/heap?gc=1")
	b := s.text(t, "/metrics")
	value := func(name string) int64 {
		_, rest, ok := strings.Cut(b, "\n"+name+" ")
		line, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(line, 64)
		if !ok || err != nil {
			t.Fatalf("no %s: %v", name, err)
		}
		return int64(v)
	}
	return value("go_memstats_heap_alloc_bytes"), value("go_memstats_alloc_bytes_total")
}

// text returns a page without compression.
func (s *scraper) text(t *testing.T, path string) string {
	t.Helper()
	r, err := s.ask(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", path, r.Status, err)
	}
	return string(b)
}

// save writes a response to a file.
func (s *scraper) save(file, path string) {
	r, err := s.ask(path, false)
	if err != nil {
		return
	}
	defer r.Body.Close()
	if f, err := os.Create(file); err == nil {
		io.Copy(f, r.Body)
		f.Close()
	}
}

// unpacked returns the length of a page's text.
func unpacked(t *testing.T, encoding string, b []byte) int {
	t.Helper()
	if encoding != "gzip" {
		return len(b)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, z)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}
