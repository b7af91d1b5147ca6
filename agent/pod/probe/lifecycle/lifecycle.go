package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/internal/event"
)

// A Caller calls containers. *call.Caller is one.
type Caller interface {
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error)
	Get(ctx context.Context, t call.Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (call.Response, error)
}

// Config is what Hooks needs.
type Config struct {
	Caller Caller
	Events event.Sink
	Dir    string // of marks; it is made
}

// Hooks is safe for concurrent use.
type Hooks struct {
	c                    Config
	fallbacks, cutShorts prometheus.Counter

	mu       sync.Mutex
	returned map[string]struct{} // by container ID
}

// Open takes over the marks of the last run.
func Open(c Config) (*Hooks, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a place for what is known of hooks: %w", err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("read what is known of hooks: %w", err)
	}
	h := &Hooks{
		c: c, returned: map[string]struct{}{},
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_lifecycle_handler_http_fallbacks_total",
			Help: "hooks that asked by HTTPS and were answered by HTTP"}),
		cutShorts: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_sleep_action_terminated_early_total",
			Help: "hooks that slept and were ended before their time"}),
	}
	for _, e := range entries {
		h.returned[e.Name()] = struct{}{}
	}
	return h, nil
}

// Collectors are what a kubelet counts of hooks, under its names.
func (h *Hooks) Collectors() []prometheus.Collector {
	return []prometheus.Collector{h.fallbacks, h.cutShorts}
}

// Has reports whether the postStart hook of a container has returned.
func (h *Hooks) Has(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.returned[id]
	return ok
}

// Returned marks a container. After an error the mark ends with this process.
func (h *Hooks) Returned(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.returned[id] = struct{}{}
	path, err := h.mark(id)
	if err != nil {
		return err
	}
	err = os.WriteFile(path, nil, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the run directory
		if err = os.MkdirAll(h.c.Dir, 0o700); err == nil {
			err = os.WriteFile(path, nil, 0o600)
		}
	}
	return err
}

// Forget removes the mark of a container, if it has one.
func (h *Hooks) Forget(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.returned[id]; !ok {
		return nil
	}
	delete(h.returned, id)
	path, err := h.mark(id)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Keep forgets all containers but those.
func (h *Hooks) Keep(there func(id string) bool) error {
	h.mu.Lock()
	var gone []string
	for id := range h.returned {
		if !there(id) {
			gone = append(gone, id)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, id := range gone {
		errs = append(errs, h.Forget(id))
	}
	return errors.Join(errs...)
}

// mark is where a container is marked. IDs are a runtime's choice.
func (h *Hooks) mark(id string) (string, error) {
	if id == "" || id == "." || id == ".." || strings.ContainsAny(id, "/\x00") {
		return "", fmt.Errorf("%q is no ID of a container", id)
	}
	return filepath.Join(h.c.Dir, id), nil
}

// maxOutput bounds what a command's output adds to the message of its failure: it goes
// into the pod's status.
const maxOutput = 1 << 10

// Run runs a hook until it or ctx has ended. The words of its errors are a kubelet's.
func (h *Hooks) Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, hook *v1.LifecycleHandler) error {
	of := fmt.Sprintf("for Container %q in Pod %q failed - error", ctr.Name, fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID))
	switch {
	case hook.Exec != nil:
		out, err := h.c.Caller.Exec(ctx, id, hook.Exec.Command, 0)
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) %s: %w, message: %q", hook.Exec.Command, of, err, out[:min(len(out), maxOutput)])
		}
	case hook.HTTPGet != nil:
		if err := h.get(ctx, pod, ctr, id, hook.HTTPGet); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) %s: %w", hook.HTTPGet.Path, of, err)
		}
	case hook.Sleep != nil:
		if err := sleep(ctx, hook.Sleep.Seconds); err != nil {
			h.cutShorts.Inc()
			return fmt.Errorf("Sleep lifecycle hook (%d) %s: %w", hook.Sleep.Seconds, of, err)
		}
	default: // tcpSocket, too: the API has it for compatibility only
		return fmt.Errorf("Cannot run handler: invalid handler: %v", hook)
	}
	return nil
}

// get makes a request. Whatever the server answers is success; one that speaks HTTP where
// HTTPS was asked for is asked again, without what must not be read on the way.
func (h *Hooks) get(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, a *v1.HTTPGetAction) error {
	t := call.Target{ID: id, Container: ctr, IP: pod.Status.PodIP}
	_, err := h.c.Caller.Get(ctx, t, a, call.Lifecycle, 0)
	if err == nil || errors.Is(err, call.ErrBroken) {
		return nil
	}
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return err
	}
	plain := a.DeepCopy()
	plain.Scheme, plain.HTTPHeaders = v1.URISchemeHTTP, nil
	for _, header := range a.HTTPHeaders {
		if !strings.EqualFold(header.Name, "Authorization") {
			plain.HTTPHeaders = append(plain.HTTPHeaders, header)
		}
	}
	if _, again := h.c.Caller.Get(ctx, t, plain, call.Lifecycle, 0); again != nil && !errors.Is(again, call.ErrBroken) {
		return err
	}
	address, err := t.Address(a.Host, a.Port)
	if err != nil {
		return err
	}
	h.fallbacks.Inc()
	h.c.Events.Pod(pod, "", v1.EventTypeWarning, "LifecycleHTTPFallback",
		fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", address))
	return nil
}

func sleep(ctx context.Context, seconds int64) error {
	timer := time.NewTimer(time.Duration(min(seconds, math.MaxInt64/int64(time.Second))) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.New("container terminated before sleep hook finished")
	}
}
