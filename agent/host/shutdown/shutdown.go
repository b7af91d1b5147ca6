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

	"github.com/islet-edge/islet/internal/event"
)

// A Host reports when the machine shuts down. *Logind implements it.
type Host interface {
	// Run calls notify with the current state and again at each change, until ctx ends. The machine delays its shutdown
	// until release is called or the machine's maximum delay has passed.
	Run(ctx context.Context, need time.Duration, notify func(off bool, release func()))
}

// Meta stores single values. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config configures New.
type Config struct {
	Periods []Period // if empty, shutdowns have no effect
	Host    Host     // if nil, shutdowns of the machine are not detected
	File    string   // stores the progress; must not survive a reboot
	Meta    Meta
	Pods    func() []*v1.Pod     // all desired pods
	AtRest  func(types.UID) bool // reports whether the pod has no running container and no mounted volume
	Poke    func(types.UID)      // called for each pod for which the result of PodTermination has changed
	Changed func()               // called when the result of InProgress has changed
	// Extend requests more time from the service manager before it kills this process.
	Extend func(time.Duration) error
	Events event.Sink
	Log    *slog.Logger
}

// Shutdown is safe for concurrent use.
type Shutdown struct {
	c              Config
	events         chan notice
	progressSignal chan struct{} // capacity 1; receives a value when a pod's worker has made progress
	metrics        metrics

	mu       sync.Mutex
	progress *progressRecord // nil if there is no shutdown
	done     chan struct{}   // closed when the turns of all pods are over, or at a cancellation
}

type notice struct {
	shuttingDown bool
	logind       bool
	releaseLock  func()
	handled      chan struct{} // closed when the event has been handled; may be nil
}

// New returns a Shutdown. If the previous agent was killed during a shutdown, it resumes that shutdown.
func New(ctx context.Context, c Config) (*Shutdown, error) {
	s := &Shutdown{c: c, events: make(chan notice), progressSignal: make(chan struct{}, 1), done: make(chan struct{}),
		metrics: newMetrics()}
	if len(c.Periods) == 0 {
		return s, nil
	}
	var err error
	if s.progress, err = readProgress(c.File); err != nil {
		c.Log.Error("cannot read whether a shutdown is in progress", "error", err)
	}
	if s.progress != nil && s.progress.Done {
		close(s.done)
	}
	text, _, err := c.Meta.Meta(ctx, metaKey)
	if err != nil {
		return nil, err
	}
	s.metrics.load(text)
	return s, nil
}

// InProgress reports whether a shutdown is in progress. The node is then not ready and admits no pods.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
func (s *Shutdown) InProgress() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress != nil
}

// NotReady returns the reason why the node is not ready, in a kubelet's words. It returns "" if there is no shutdown.
func (s *Shutdown) NotReady() string {
	if s.InProgress() {
		return "node is shutting down"
	}
	return ""
}

// PodTermination returns the time at which the graceful shutdown of a pod began, and the pod's grace period. Both are
// zero if the shutdown has not reached the pod's period yet.
func (s *Shutdown) PodTermination(pod *v1.Pod) (since time.Time, most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress == nil {
		return time.Time{}, 0
	}
	if i := periodIndex(s.c.Periods, pod); i < len(s.progress.Turns) {
		return s.progress.Turns[i], s.c.Periods[i].Grace
	}
	return time.Time{}, 0
}

// WorkerProgressed must be called when a pod's worker has made progress. It never blocks.
func (s *Shutdown) WorkerProgressed() {
	select {
	case s.progressSignal <- struct{}{}:
	default:
	}
}

// Begin ends all pods in order, as at a shutdown of the machine. It returns when they have ended or their time has
// passed. If no periods are configured, it ends no pod and returns false.
func (s *Shutdown) Begin(ctx context.Context) (configured bool, err error) {
	if len(s.c.Periods) == 0 {
		return false, nil
	}
	taken := make(chan struct{})
	if err := s.sendNotice(ctx, notice{shuttingDown: true, handled: taken}); err != nil {
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
	if !s.InProgress() {
		return true, errors.New("the shutdown was cancelled: the pods are started again")
	}
	return true, nil
}

// Cancel cancels Begin, so that the pods are started again.
func (s *Shutdown) Cancel(ctx context.Context) error {
	if len(s.c.Periods) == 0 {
		return nil
	}
	return s.sendNotice(ctx, notice{})
}

func (s *Shutdown) sendNotice(ctx context.Context, e notice) error {
	select {
	case s.events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run handles shutdowns until ctx ends.
func (s *Shutdown) Run(ctx context.Context) error {
	if len(s.c.Periods) == 0 {
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.c.Host != nil {
		wg.Go(func() {
			s.c.Host.Run(ctx, Total(s.c.Periods), func(off bool, release func()) {
				if s.sendNotice(ctx, notice{shuttingDown: off, logind: true, releaseLock: release}) != nil && release != nil {
					release() // the inhibitor lock would delay the shutdown needlessly
				}
			})
		})
	}
	release := func() {}
	for {
		wake, over := s.startNextTurn(ctx)
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
		case <-s.progressSignal:
		case e := <-s.events:
			if e.releaseLock != nil {
				release = e.releaseLock
			}
			s.handleNotice(e)
			if e.handled != nil {
				close(e.handled)
			}
		}
	}
}

// handleNotice starts or cancels a shutdown. A shutdown that was started by islet shutdown cannot be cancelled by logind.
func (s *Shutdown) handleNotice(e notice) {
	s.mu.Lock()
	m := s.progress
	switch {
	case e.shuttingDown && m != nil:
		m.Logind = m.Logind || e.logind
		s.mu.Unlock()
		return
	case !e.shuttingDown && (m == nil || m.Logind != e.logind):
		s.mu.Unlock()
		return
	case e.shuttingDown:
		s.progress, s.done = &progressRecord{Logind: e.logind}, make(chan struct{})
		s.metrics.begin(time.Now())
	default:
		if !m.Done {
			close(s.done)
		}
		s.progress = nil
		if err := os.Remove(s.c.File); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.c.Log.Error("cannot remove the record of a shutdown: the next agent will continue it", "error", err)
		}
	}
	s.mu.Unlock()
	if e.shuttingDown {
		s.c.Log.Warn("this machine is shutting down: ending pods in order", "within", Total(s.c.Periods))
		s.c.Events.Node(v1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown event")
		if err := s.c.Extend(Total(s.c.Periods)); err != nil {
			s.c.Log.Warn("cannot extend the service manager's stop timeout: this process may be killed before all pods have ended",
				"error", err)
		}
		s.c.Changed()
		return
	}
	s.c.Log.Warn("the shutdown was cancelled: pods are started again")
	s.c.Events.Node(v1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown cancellation")
	s.c.Changed()
	for _, p := range s.c.Pods() {
		s.c.Poke(p.UID)
	}
}

// startNextTurn starts the next turn if the pods of the current one have ended or its time has passed. It returns the latest
// time at which it must be called again, and whether all turns are over. It reads the progress without the lock,
// because only Run's goroutine changes the progress.
func (s *Shutdown) startNextTurn(ctx context.Context) (wake time.Time, over bool) {
	for m := s.progress; m != nil; {
		if m.Done {
			return time.Time{}, true
		}
		turn, now := len(m.Turns)-1, time.Now()
		if turn >= 0 { // a change of the clock must not extend the turn
			grace, waits := s.c.Periods[turn].Grace, s.restless(turn)
			if end := m.Turns[turn].Add(grace); end.After(now) && end.Sub(now) <= grace && len(waits) > 0 {
				return end, false
			}
			if len(waits) > 0 {
				s.c.Log.Warn("the shutdown goes on, although the time was too short for these pods: containers run, or volumes are mounted",
					"pods", waits)
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
		var pods []*v1.Pod
		if !m.Done {
			pods = s.podsOf(turn)
		}
		for _, p := range pods {
			s.c.Poke(p.UID)
		}
		s.recordProgress(ctx, err, m.Done, turn, len(pods))
	}
	return time.Time{}, false
}

// recordProgress updates the metrics and logs the progress of a shutdown.
func (s *Shutdown) recordProgress(ctx context.Context, err error, done bool, turn, pods int) {
	if turn == 0 || done {
		err = errors.Join(err, s.c.Meta.SetMeta(ctx, metaKey, s.metrics.text()))
	}
	if err != nil {
		s.c.Log.Warn("cannot store the progress of the shutdown: an agent that starts now would not continue it", "error", err)
	}
	switch {
	case done:
		s.c.Log.Info("all pods have ended or their time has passed")
	case pods > 0:
		s.c.Log.Info("ending pods for the shutdown", "priority", s.c.Periods[turn].Priority, "pods", pods,
			"within", s.c.Periods[turn].Grace)
	}
}

// podsOf returns the pods that belong to a period.
func (s *Shutdown) podsOf(turn int) (pods []*v1.Pod) {
	for _, p := range s.c.Pods() {
		if periodIndex(s.c.Periods, p) == turn {
			pods = append(pods, p)
		}
	}
	return pods
}

// restless returns the names of the pods of the period that still have a running container or a mounted volume.
func (s *Shutdown) restless(turn int) (names []string) {
	for _, p := range s.podsOf(turn) {
		if !s.c.AtRest(p.UID) {
			names = append(names, p.Namespace+"/"+p.Name)
		}
	}
	return names
}

// metaKey is the key under which the times of the last shutdown are stored.
const metaKey = "shutdown"

// metrics contains the kubelet's metrics of the last shutdown. They are stored, so that they survive a reboot.
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
		m.setGauges()
	}
}

func (m *metrics) setGauges() {
	m.gauges[0].Set(m.Start)
	m.gauges[1].Set(m.End)
}

func (m *metrics) begin(at time.Time) {
	m.Start, m.End = float64(at.UnixMilli())/1000, 0
	m.setGauges()
}
func (m *metrics) end(at time.Time) { m.End = float64(at.UnixMilli()) / 1000; m.setGauges() }

func (m *metrics) text() string {
	text, _ := json.Marshal(m) // two numbers
	return string(text)
}

// Collectors returns the kubelet's metrics of graceful shutdowns.
func (s *Shutdown) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.gauges[0], s.metrics.gauges[1]}
}
