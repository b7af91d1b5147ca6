package figures

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/internal/clock"
)

// A Startup records how long a new node took from the boot of the machine until its Node was ready. The metrics have no
// series if the Node existed when the agent started, as after a restart. It implements node.Startup.
type Startup struct {
	beforeAgent, beforeRegistration, registration, afterRegistration, total *prometheus.GaugeVec

	uptime     func() (time.Duration, bool)
	agentStart time.Duration // uptime when the agent started

	mu    sync.Mutex
	state startupState
	last  time.Duration // uptime when state began
}

type startupState int

const (
	starting startupState = iota
	registering
	registered
	startupDone // nothing more is recorded
)

func newStartup(began time.Time) *Startup {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, nil)
	}
	up, _ := clock.Uptime()
	return &Startup{
		beforeAgent: gauge("kubelet_node_startup_pre_kubelet_duration_seconds",
			"time in seconds from the boot of the machine to the start of the agent that registered the node"),
		beforeRegistration: gauge("kubelet_node_startup_pre_registration_duration_seconds",
			"time in seconds from the start of the agent to the first attempt to register the node"),
		registration: gauge("kubelet_node_startup_registration_duration_seconds",
			"time in seconds from the first attempt to register the node to its success"),
		afterRegistration: gauge("kubelet_node_startup_post_registration_duration_seconds",
			"time in seconds from the registration of the node until it was ready"),
		total: gauge("kubelet_node_startup_duration_seconds",
			"time in seconds from the boot of the machine until the new node was ready"),
		uptime: clock.Uptime, agentStart: up - time.Since(began),
	}
}

func (s *Startup) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.beforeAgent, s.beforeRegistration, s.registration, s.afterRegistration, s.total}
}

func setSeconds(g *prometheus.GaugeVec, d time.Duration) { g.WithLabelValues().Set(d.Seconds()) }

// Registering is called before each attempt to register the node.
func (s *Startup) Registering() { s.changeState(starting, registering, func(time.Duration) {}) }

// Found is called when the Node exists and this node did not create it.
func (s *Startup) Found() { s.changeState(registering, startupDone, func(time.Duration) {}) }

// Created is called when this node has created its Node.
func (s *Startup) Created() {
	s.changeState(registering, registered, func(now time.Duration) {
		setSeconds(s.beforeAgent, s.agentStart)
		setSeconds(s.beforeRegistration, s.last-s.agentStart)
		setSeconds(s.registration, now-s.last)
	})
}

// Ready is called when the API server has the Node as ready.
func (s *Startup) Ready() {
	s.changeState(registered, startupDone, func(now time.Duration) {
		setSeconds(s.afterRegistration, now-s.last)
		setSeconds(s.total, now)
	})
}

// changeState changes the state and calls record with the current uptime. It does nothing if the current state is not the
// expected one.
func (s *Startup) changeState(from, to startupState, record func(now time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != from {
		return
	}
	now, ok := s.uptime()
	if !ok {
		return
	}
	record(now)
	s.state, s.last = to, now
}
