package response

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/runtime/cri"
)

// AliveInterval is the interval at which a response of unlimited length sends a line although nothing has happened. The client can then
// distinguish a slow operation from an agent that hangs, and the server detects that the client has disconnected.
const AliveInterval = 10 * time.Second

// progressInterval is the minimum interval of progress per image reference.
const progressInterval = 200 * time.Millisecond

// Lines is a stream of JSON values. Each line has one value.
type Lines struct {
	*Stream
	enc *json.Encoder
	err error // the first error; nothing is sent after it
}

// NewLines starts a response of lines. The parameter idle is the timeout of a write.
func NewLines(w http.ResponseWriter, idle time.Duration) *Lines {
	t := NewStream(w, "application/x-ndjson", idle)
	return &Lines{Stream: t, enc: json.NewEncoder(t)}
}

// Send sends a line with the value v. After an error it does nothing.
func (l *Lines) Send(v any) {
	if l.err == nil {
		l.err = l.enc.Encode(v)
	}
	if l.err == nil {
		l.err = l.Flush()
	}
}

// Err returns the first error of Send.
func (l *Lines) Err() error { return l.err }

// Progress sends api.Progress lines, at a limited rate per reference.
type Progress struct {
	*Lines
	mu    sync.Mutex
	last  map[string]sentStatus
	ended bool
}

type sentStatus struct {
	status string
	at     time.Time
}

// NewProgress starts a response of api.Progress lines. The parameter idle is the timeout of a write.
func NewProgress(w http.ResponseWriter, idle time.Duration) *Progress {
	return &Progress{Lines: NewLines(w, idle), last: map[string]sentStatus{}}
}

// SendProgress sends the progress of an import or a pull, unless a line with the same status was just sent.
func (p *Progress) SendProgress(i cri.ImportProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[i.Ref]
	if last.status == i.Status && time.Since(last.at) < progressInterval {
		return
	}
	p.last[i.Ref] = sentStatus{i.Status, time.Now()}
	p.Send(api.Progress{Ref: i.Ref, Status: i.Status, Current: i.Current, Total: i.Total})
}

// KeepAlive sends an empty line periodically until the returned function is called, so that the client can
// distinguish a slow operation from an agent that hangs.
func (p *Progress) KeepAlive() (done func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(AliveInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			p.mu.Lock()
			if !p.ended {
				p.Send(api.Progress{})
			}
			p.mu.Unlock()
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// SendLine sends a line at once, without the rate limit.
func (p *Progress) SendLine(line api.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Send(line)
}

// SendImages sends the last line, which reports the names of images or containers, or the error.
func (p *Progress) SendImages(images []string, err error) {
	p.SendResult(api.Progress{Images: images}, err)
}

// SendResult sends the last line, which reports the result or the error.
func (p *Progress) SendResult(last api.Progress, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if err != nil {
		p.Send(api.Progress{Error: err.Error()})
		return
	}
	last.Done = true
	p.Send(last)
}
