package image

import (
	"io"
	"sync"
	"time"

	"github.com/islet-edge/islet/runtime/cri"
)

// meterStep is the number of bytes between two progress reports of an archive.
const meterStep = 1 << 20

// A meteredReader is a reader that reports the number of bytes read.
type meteredReader struct {
	io.Reader
	name   string
	report func(cri.ImportProgress)
	read   int64
	next   int64
}

func (m *meteredReader) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.read += int64(n)
	if m.read >= m.next {
		m.next = m.read + meterStep
		m.report(cri.ImportProgress{Ref: m.name, Status: "reading", Current: m.read})
	}
	return n, err
}

// tellEvery is the minimum interval between two progress reports of a pull.
const tellEvery = 100 * time.Millisecond

// A transfer adds up the progress of a pull's layers and reports it. Several goroutines use it.
type transfer struct {
	ref    string
	report func(cri.ImportProgress)

	mu      sync.Mutex
	current int64
	total   int64
	last    time.Time
}

func (t *transfer) add(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current += n
	if now := time.Now(); t.current >= t.total || now.Sub(t.last) >= tellEvery {
		t.last = now
		t.report(cri.ImportProgress{Ref: t.ref, Status: "downloading", Current: t.current, Total: t.total})
	}
}

// downloadedBytes returns the number of bytes downloaded.
func (t *transfer) downloadedBytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// reportStatus reports the next phase of the pull. The progress is never reported concurrently.
func (t *transfer) reportStatus(s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report(cri.ImportProgress{Ref: t.ref, Status: s, Current: t.current, Total: t.total})
}
