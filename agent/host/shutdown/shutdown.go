package shutdown

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Host tells when the machine goes off. *Logind is one.
type Host interface {
	// Run calls told with each change, and first with how it is now, until ctx ends. The
	// machine stays up until release, or until it is tired of waiting.
	Run(ctx context.Context, need time.Duration, told func(off bool, release func()))
}

// Events takes those of the node. *outbox.Events is one.
type Events interface {
	Node(eventType, reason, message string)
}

// Meta keeps a value. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config is what New needs.
type Config struct {
	Periods []Period // none: nothing is done
	Host    Host     // nil: nobody tells
	File    string   // where it is noted what goes on; it goes with the boot
	Meta    Meta
	Pods    func() []*v1.Pod     // all that are wanted
	AtRest  func(types.UID) bool // nothing of the pod runs
	Poke    func(types.UID)      // Off says something else about the pod
	Changed func()               // Going says something else
	// Extend asks the service manager not to end this process for so long.
	Extend func(time.Duration) error
	Events Events
	Log    *slog.Logger
}

// Shutdown is safe for concurrent use.
type Shutdown struct {
	c       Config
	events  chan event
	touched chan struct{} // capacity 1: a pod's worker has done something
	metrics metrics

	mu   sync.Mutex
	mark *mark         // nil: the machine stays up
	done chan struct{} // closed when all pods have had their turn, or need not
}

type event struct {
	off     bool
	logind  bool
	release func()
	taken   chan struct{} // closed once it counts; nil: nobody waits for that
}

// New takes up what an agent left that was killed while the machine went off.
func New(ctx context.Context, c Config) (*Shutdown, error) {
	s := &Shutdown{c: c, events: make(chan event), touched: make(chan struct{}, 1), done: make(chan struct{}), metrics: newMetrics()}
	if len(c.Periods) == 0 {
		return s, nil
	}
	var err error
	if s.mark, err = recall(c.File); err != nil {
		c.Log.Error("it is not known whether this machine goes off", "error", err)
	}
	if s.mark != nil && s.mark.Done {
		close(s.done)
	}
	text, _, err := c.Meta.Meta(ctx, metaKey)
	if err != nil {
		return nil, err
	}
	s.metrics.load(text)
	return s, nil
}

// Going reports whether the machine goes off: then the node is not ready and takes no
// pods. https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
func (s *Shutdown) Going() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark != nil
}

// NotReady is why the node is not ready, in a kubelet's words; empty: it may be.
func (s *Shutdown) NotReady() string {
	if s.Going() {
		return "node is shutting down"
	}
	return ""
}

// Off says whether it is a pod's turn to end: since when, and how long it has at most.
func (s *Shutdown) Off(pod *v1.Pod) (since time.Time, most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mark == nil {
		return time.Time{}, 0
	}
	if i := group(s.c.Periods, pod); i < len(s.mark.Turns) {
		return s.mark.Turns[i], s.c.Periods[i].Grace
	}
	return time.Time{}, 0
}

// Touched says that something was done about a pod. It never blocks.
func (s *Shutdown) Touched() {
	select {
	case s.touched <- struct{}{}:
	default:
	}
}

// Begin ends all pods in order, as if the machine went off, and returns once they have
// ended or had their time. False: none ends, for nobody said how long they may take.
func (s *Shutdown) Begin(ctx context.Context) (configured bool, err error) {
	if len(s.c.Periods) == 0 {
		return false, nil
	}
	taken := make(chan struct{})
	if err := s.tell(ctx, event{off: true, taken: taken}); err != nil {
		return true, err
	}
	<-taken
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return true, ctx.Err()
	}
	if !s.Going() {
		return true, errors.New("it was cancelled: the pods run again")
	}
	return true, nil
}

// Cancel lets the pods run again that Begin ended.
func (s *Shutdown) Cancel(ctx context.Context) error {
	if len(s.c.Periods) == 0 {
		return nil
	}
	return s.tell(ctx, event{})
}

func (s *Shutdown) tell(ctx context.Context, e event) error {
	select {
	case s.events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run gives the pods their turns until ctx ends.
func (s *Shutdown) Run(ctx context.Context) error {
	if len(s.c.Periods) == 0 {
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.c.Host != nil {
		wg.Go(func() {
			s.c.Host.Run(ctx, Total(s.c.Periods), func(off bool, release func()) {
				if s.tell(ctx, event{off: off, logind: true, release: release}) != nil && release != nil {
					release() // it would hold the machine up for nothing
				}
			})
		})
	}
	release := func() {}
	for {
		wake, over := s.step(ctx)
		if over {
			release()
		}
		var timer <-chan time.Time
		if !wake.IsZero() {
			timer = time.After(time.Until(wake))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer:
		case <-s.touched:
		case e := <-s.events:
			if e.release != nil {
				release = e.release
			}
			s.take(e)
			if e.taken != nil {
				close(e.taken)
			}
		}
	}
}

// take begins or undoes a shutdown. What logind did not begin it does not undo.
func (s *Shutdown) take(e event) {
	s.mu.Lock()
	m := s.mark
	switch {
	case e.off && m != nil:
		m.Logind = m.Logind || e.logind
		s.mu.Unlock()
		return
	case !e.off && (m == nil || m.Logind != e.logind):
		s.mu.Unlock()
		return
	case e.off:
		s.mark, s.done = &mark{Logind: e.logind}, make(chan struct{})
		s.metrics.begin(time.Now())
	default:
		if !m.Done {
			close(s.done)
		}
		s.mark = nil
		if err := os.Remove(s.c.File); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.c.Log.Error("the next agent will take this machine for one that goes off", "error", err)
		}
	}
	s.mu.Unlock()
	if e.off {
		s.c.Log.Warn("this machine goes off: pods end in order", "within", Total(s.c.Periods))
		s.c.Events.Node(v1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown event")
		if err := s.c.Extend(Total(s.c.Periods)); err != nil {
			s.c.Log.Warn("the service manager may end this process before all pods", "error", err)
		}
		s.c.Changed()
		return
	}
	s.c.Log.Warn("this machine stays up: pods start again")
	s.c.Events.Node(v1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown cancellation")
	s.c.Changed()
	for _, p := range s.c.Pods() {
		s.c.Poke(p.UID)
	}
}

// step gives the next pods their turn once those before them have ended, or their time is
// over. It says when to look again at the latest, and whether all have had their turn. Only
// Run's goroutine changes the mark, so here it is read without the lock, which Off needs.
func (s *Shutdown) step(ctx context.Context) (wake time.Time, over bool) {
	for m := s.mark; m != nil; {
		if m.Done {
			return time.Time{}, true
		}
		turn, now := len(m.Turns)-1, time.Now()
		if turn >= 0 { // a clock that was set meanwhile does not make it longer
			grace := s.c.Periods[turn].Grace
			if end := m.Turns[turn].Add(grace); end.After(now) && end.Sub(now) <= grace && s.busy(turn) {
				return end, false
			}
		}
		turn++
		s.mu.Lock()
		if m.Done = turn == len(s.c.Periods); m.Done {
			close(s.done)
			s.metrics.end(now)
		} else {
			m.Turns = append(m.Turns, now)
		}
		err := m.write(s.c.File)
		s.mu.Unlock()
		var theirs []*v1.Pod
		if !m.Done {
			theirs = s.of(turn)
		}
		for _, p := range theirs {
			s.c.Poke(p.UID)
		}
		s.note(ctx, err, m.Done, turn, len(theirs))
	}
	return time.Time{}, false
}

// note keeps what the metrics show, and tells how far it is.
func (s *Shutdown) note(ctx context.Context, err error, done bool, turn, pods int) {
	if turn == 0 || done {
		err = errors.Join(err, s.c.Meta.SetMeta(ctx, metaKey, s.metrics.text()))
	}
	if err != nil {
		s.c.Log.Warn("what goes on is not noted: an agent that starts now would not know", "error", err)
	}
	switch {
	case done:
		s.c.Log.Info("all pods had their time to end")
	case pods > 0:
		s.c.Log.Info("pods end with this machine", "priority", s.c.Periods[turn].Priority, "pods", pods, "within", s.c.Periods[turn].Grace)
	}
}

// of lists the pods of a period.
func (s *Shutdown) of(turn int) (theirs []*v1.Pod) {
	for _, p := range s.c.Pods() {
		if group(s.c.Periods, p) == turn {
			theirs = append(theirs, p)
		}
	}
	return theirs
}

// busy reports whether something of a period's pods still runs.
func (s *Shutdown) busy(turn int) bool {
	for _, p := range s.of(turn) {
		if !s.c.AtRest(p.UID) {
			return true
		}
	}
	return false
}

// metaKey is where the store has the times of the last shutdown.
const metaKey = "shutdown"

// metrics are the kubelet's, kept over the boot: they say how long the last shutdown took.
type metrics struct {
	Start, End float64
	gauges     [2]prometheus.Gauge
}

func newMetrics() metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return metrics{gauges: [2]prometheus.Gauge{
		gauge("kubelet_graceful_shutdown_start_time_seconds", "when the last graceful shutdown of the node began"),
		gauge("kubelet_graceful_shutdown_end_time_seconds", "when it had ended all pods"),
	}}
}

func (m *metrics) load(text string) {
	if json.Unmarshal([]byte(cmp.Or(text, "{}")), m) == nil {
		m.show()
	}
}

func (m *metrics) show() {
	m.gauges[0].Set(m.Start)
	m.gauges[1].Set(m.End)
}

func (m *metrics) begin(at time.Time) { m.Start, m.End = float64(at.UnixMilli())/1000, 0; m.show() }
func (m *metrics) end(at time.Time)   { m.End = float64(at.UnixMilli()) / 1000; m.show() }

func (m *metrics) text() string {
	text, _ := json.Marshal(m) // of two numbers
	return string(text)
}

// Collectors are the kubelet's metrics of graceful shutdowns.
func (s *Shutdown) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.gauges[0], s.metrics.gauges[1]}
}
