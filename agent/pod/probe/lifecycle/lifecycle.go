package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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

// A Caller makes the calls of hooks. *call.Caller implements it.
type Caller interface {
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) ([]byte, error)
	Get(ctx context.Context, t call.Target, a *v1.HTTPGetAction, purpose string, timeout time.Duration) (call.Response, error)
}

// Config configures Hooks.
type Config struct {
	Caller Caller
	Events event.Sink
	Dir    string // directory with a file for each container whose postStart hook has returned; Open creates it
	State  string // the agent's state directory, which survives a reboot
	Log    *slog.Logger
}

// Hooks runs hooks and stores which of them have returned. It also stores the Interruptions. It is safe for concurrent use.
type Hooks struct {
	*Interruptions
	c                    Config
	fallbacks, sleepsCut prometheus.Counter

	mu          sync.Mutex
	returnedIDs map[string]struct{} // by container ID
}

// Open returns Hooks with the marks that an earlier agent has stored.
func Open(c Config) (*Hooks, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a place for what is known of hooks: %w", err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("read what is known of hooks: %w", err)
	}
	stops, err := ReadInterruptions(c.State)
	if err != nil {
		c.Log.Error("it is not known which containers were stopped before their work was done, so their exit codes decide whether they "+
			"run again", "error", err)
	}
	h := &Hooks{
		Interruptions: stops, c: c, returnedIDs: map[string]struct{}{},
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_lifecycle_handler_http_fallbacks_total",
			Help: "hooks that asked by HTTPS and were answered by HTTP"}),
		sleepsCut: prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_sleep_action_terminated_early_total",
			Help: "hooks that slept and were ended before their time"}),
	}
	for _, e := range entries {
		h.returnedIDs[e.Name()] = struct{}{}
	}
	return h, nil
}

// Collectors returns the metrics of hooks. Their names are the same as in a kubelet.
func (h *Hooks) Collectors() []prometheus.Collector {
	return []prometheus.Collector{h.fallbacks, h.sleepsCut}
}

// HasReturned reports whether the postStart hook of a container has returned.
func (h *Hooks) HasReturned(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.returnedIDs[id]
	return ok
}

// MarkReturned records that the postStart hook of a container has returned. If the mark cannot be stored, it
// is lost when this process ends.
func (h *Hooks) MarkReturned(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.returnedIDs[id] = struct{}{}
	path, err := h.markPath(id)
	if err != nil {
		return err
	}
	err = os.WriteFile(path, nil, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // someone removed the run directory
		if err = os.MkdirAll(h.c.Dir, 0o700); err == nil {
			err = os.WriteFile(path, nil, 0o600)
		}
	}
	return err
}

// Forget removes the records of a container: that its postStart hook has returned, and its Interruption.
func (h *Hooks) Forget(id string) error {
	return errors.Join(h.Interruptions.forget(id), h.forgetReturned(id))
}

func (h *Hooks) forgetReturned(id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.returnedIDs[id]; !ok {
		return nil
	}
	delete(h.returnedIDs, id)
	path, err := h.markPath(id)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Prune removes the records of all containers for which exists returns false.
func (h *Hooks) Prune(exists func(id string) bool) error {
	h.mu.Lock()
	var gone []string
	for id := range h.returnedIDs {
		if !exists(id) {
			gone = append(gone, id)
		}
	}
	h.mu.Unlock()
	var errs []error
	for _, id := range append(gone, h.Interruptions.gone(exists)...) {
		errs = append(errs, h.Forget(id))
	}
	return errors.Join(errs...)
}

// markPath returns the path of the file which records that the postStart hook of a container has returned.
func (h *Hooks) markPath(id string) (string, error) {
	name, err := fileName(id)
	return filepath.Join(h.c.Dir, name), err
}

// fileName returns the ID of a container as a part of a file name. It validates the ID, which comes from the runtime.
func fileName(id string) (string, error) {
	if id == "" || id == "." || id == ".." || strings.ContainsAny(id, "/\x00") {
		return "", fmt.Errorf("%q is not an ID of a container", id)
	}
	return id, nil
}

// maxOutput is the maximum number of bytes of a command's output in an error message. The message becomes part of the
// pod's status.
const maxOutput = 1 << 10

// Run runs a hook until the hook returns or ctx ends. Its error messages are the same as a kubelet's.
func (h *Hooks) Run(ctx context.Context, pod *v1.Pod, ctr *v1.Container, id string, hook *v1.LifecycleHandler) error {
	suffix := fmt.Sprintf("for Container %q in Pod %q failed - error", ctr.Name, fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID))
	switch {
	case hook.Exec != nil:
		out, err := h.c.Caller.Exec(ctx, id, hook.Exec.Command, 0)
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) %s: %w, message: %q", hook.Exec.Command, suffix, err,
				out[:min(len(out), maxOutput)])
		}
	case hook.HTTPGet != nil:
		if err := h.get(ctx, pod, ctr, id, hook.HTTPGet); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) %s: %w", hook.HTTPGet.Path, suffix, err)
		}
	case hook.Sleep != nil:
		if err := sleep(ctx, hook.Sleep.Seconds); err != nil {
			h.sleepsCut.Inc()
			return fmt.Errorf("Sleep lifecycle hook (%d) %s: %w", hook.Sleep.Seconds, suffix, err)
		}
	default: // also a tcpSocket, which the API accepts only for compatibility
		return fmt.Errorf("Cannot run handler: invalid handler: %v", hook)
	}
	return nil
}

// get sends the HTTP request of a hook. Any response counts as success. If the action specifies HTTPS but the server
// responds with HTTP, the request is repeated over HTTP, without the Authorization header.
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
