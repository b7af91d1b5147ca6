package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/islet-edge/islet/internal/retry"
)

// How long a plugin may take: to accept a connection and speak gRPC, to say what it is, to
// be told whether it was taken, as in a kubelet but for GetInfo, which slow machines need
// more than a second for.
const (
	connectWithin = 10 * time.Second
	infoWithin    = 5 * time.Second
	notifyWithin  = 5 * time.Second
)

const (
	firstRetry = 100 * time.Millisecond // a socket is there a moment before somebody listens
	lastRetry  = 2 * time.Minute
)

// Bounds of what a plugin says.
const (
	maxName     = 253 // a DNS subdomain
	maxEndpoint = 107 // a path in a sockaddr_un
	maxVersions = 32
	maxVersion  = 64
)

// A socket is one file at which a plugin registers. The registry's lock guards it.
type socket struct {
	path  string
	id    identity
	there bool
	made  int // counts how often it was made

	busy bool               // it has a goroutine
	stop context.CancelFunc // ends what goes on
	has  *registered        // nil: nothing
}

type registered struct {
	Plugin
	handler Handler
	made    int
}

// settle has a goroutine make of a socket what it should be. The caller holds mu.
func (r *Registry) settle(ctx context.Context, s *socket) {
	if s.busy {
		s.stop() // what goes on is of the past
		return
	}
	s.busy = true
	r.next(ctx, s)
}

// next starts the goroutine for what is to be done next, if anything is. The caller holds mu.
func (r *Registry) next(ctx context.Context, s *socket) {
	var do func(context.Context)
	made := s.made
	switch has := s.has; {
	case ctx.Err() != nil:
	case has != nil && (!s.there || has.made != made):
		do = func(context.Context) { r.deregister(s, has) }
	case s.there && has == nil:
		do = func(step context.Context) { r.register(ctx, step, s, made) }
	}
	if do == nil {
		s.busy = false
		if !s.there && s.has == nil {
			delete(r.sockets, s.path)
		}
		return
	}
	step, stop := context.WithCancel(ctx)
	s.stop = stop
	r.all.Go(func() {
		defer stop()
		do(step)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.next(ctx, s)
	})
}

func (r *Registry) deregister(s *socket, has *registered) {
	has.handler.Deregister(has.Plugin)
	r.c.Log.Info("a plugin is gone", "plugin", has.Name, "socket", s.path)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.has = nil
}

// register tries until a plugin is registered or the step ends, or ctx, which is the agent's.
func (r *Registry) register(ctx, step context.Context, s *socket, made int) {
	again := retry.Backoff{First: firstRetry, Most: lastRetry}
	told := ""
	select {
	case <-time.After(r.calm(s.path)):
	case <-step.Done():
		return
	}
	for {
		has, err := r.try(step, s.path)
		if ctx.Err() != nil {
			return
		}
		if has != nil && (err != nil || step.Err() != nil) {
			has.handler.Deregister(has.Plugin)
		}
		if step.Err() != nil {
			return
		}
		if err == nil {
			has.made = made
			r.c.Log.Info("a plugin has registered", "plugin", has.Name, "endpoint", has.Endpoint, "versions", has.Versions, "socket", s.path)
			r.mu.Lock()
			defer r.mu.Unlock()
			s.has = has
			return
		}
		// A socket of which nobody has heard for a while is left over from a reboot, which is
		// nothing to tell of at once.
		if text := err.Error(); text != told && again.Failing() {
			r.c.Log.Warn("a plugin cannot be registered, trying again", "socket", s.path, "error", err)
			told = text
		}
		if _, err := again.Wait(step, 0, nil); err != nil {
			return
		}
	}
}

// try registers a plugin once. Its error says what is wrong, as the plugin is told; one
// that could not be told is registered nevertheless.
func (r *Registry) try(ctx context.Context, path string) (*registered, error) {
	conn, err := Dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	soon, stop := context.WithTimeout(ctx, connectWithin)
	defer stop()
	if err := Ready(soon, conn); err != nil {
		return nil, fmt.Errorf("nobody answers at the socket: %w", err)
	}
	client := registration.NewRegistrationClient(conn)
	short, stop := context.WithTimeout(ctx, infoWithin)
	defer stop()
	info, err := client.GetInfo(short, &registration.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("failed to get plugin info using RPC GetInfo: %w", err)
	}
	has, err := r.take(ctx, path, info)
	problem := ""
	if err != nil {
		problem = "RegisterPlugin error -- " + err.Error()
	}
	short, stop = context.WithTimeout(ctx, notifyWithin)
	defer stop()
	_, notified := client.NotifyRegistrationStatus(short, &registration.RegistrationStatus{PluginRegistered: err == nil, Error: problem})
	if err == nil && notified != nil {
		return has, fmt.Errorf("failed to send registration status: %w", notified)
	}
	return has, err
}

// take checks what a plugin says and hands it to its handler.
func (r *Registry) take(ctx context.Context, path string, info *registration.PluginInfo) (*registered, error) {
	handler, ok := r.c.Handlers[info.GetType()]
	if !ok {
		return nil, fmt.Errorf("no handler registered for plugin type: %.64q", info.GetType())
	}
	p := Plugin{Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions(), Socket: path}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	err := r.check(p)
	if err == nil {
		err = handler.Validate(p)
	}
	if err != nil {
		return nil, fmt.Errorf("plugin validation failed with err: %w", err)
	}
	if err := handler.Register(ctx, p); err != nil {
		return nil, fmt.Errorf("plugin registration failed with err: %w", err)
	}
	return &registered{Plugin: p, handler: handler}, nil
}

// check is for what holds of all types.
func (r *Registry) check(p Plugin) error {
	if p.Name == "" || len(p.Name) > maxName || !utf8.ValidString(p.Name) || strings.ContainsFunc(p.Name, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return fmt.Errorf("its name %.64q is no name", p.Name)
	}
	if len(p.Versions) == 0 || len(p.Versions) > maxVersions {
		return fmt.Errorf("it says that it supports %d versions", len(p.Versions))
	}
	for _, v := range p.Versions {
		if v == "" || len(v) > maxVersion {
			return fmt.Errorf("it supports a version %.64q", v)
		}
	}
	if !filepath.IsAbs(p.Endpoint) || filepath.Clean(p.Endpoint) != p.Endpoint || len(p.Endpoint) > maxEndpoint {
		return fmt.Errorf("its endpoint %.128q is no absolute path of at most %d bytes", p.Endpoint, maxEndpoint)
	}
	// Links may be above the socket, such as /var/run; what pods can make is not looked at.
	real, err := filepath.EvalSymlinks(p.Endpoint)
	if err != nil {
		return fmt.Errorf("its endpoint: %w", err)
	}
	if pods, err := filepath.EvalSymlinks(r.pods); err == nil && within(real, pods) {
		return fmt.Errorf("its endpoint %s is in a directory of a pod", p.Endpoint)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory of pods: %w", err)
	}
	fi, err := os.Lstat(real)
	if err != nil {
		return fmt.Errorf("its endpoint: %w", err)
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("its endpoint %s is not a socket", p.Endpoint)
	}
	return nil
}
