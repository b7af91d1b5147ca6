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

// Timeouts of connecting, GetInfo and NotifyRegistrationStatus. GetInfo takes more than a second on slow machines, so
// infoTimeout is longer than in a kubelet. The other timeouts are the same as in a kubelet.
const (
	connectTimeout = 10 * time.Second
	infoTimeout    = 5 * time.Second
	notifyTimeout  = 5 * time.Second
)

const (
	firstRetry = 100 * time.Millisecond // a socket exists for a short time before the plugin listens
	lastRetry  = 2 * time.Minute
)

// Limits of PluginInfo.
const (
	maxName     = 253 // maximum length of a DNS subdomain
	maxEndpoint = 107 // maximum length of a path in a sockaddr_un
	maxVersions = 32
	maxVersion  = 64
)

// A socket is one file at which a plugin registers. The registry's lock guards it.
type socket struct {
	path   string
	id     identity
	exists bool
	made   int // number of times that the socket was created

	busy       bool               // a goroutine is handling the socket
	stop       context.CancelFunc // cancels the current step
	registered *registeredSocket  // the registered plugin, or nil
}

type registeredSocket struct {
	Plugin
	handler Handler
	made    int
}

// startPending starts to register or deregister a socket if its state requires that. If a step is in progress, startPending
// cancels it. The caller holds mu.
func (r *Registry) startPending(ctx context.Context, s *socket) {
	if s.busy {
		s.stop() // its goroutine then starts the next step
		return
	}
	s.busy = true
	r.startStep(ctx, s)
}

// startStep starts the next step of a socket in a goroutine, if there is one. The caller holds mu.
func (r *Registry) startStep(ctx context.Context, s *socket) {
	var do func(context.Context)
	made := s.made
	switch has := s.registered; {
	case ctx.Err() != nil:
	case has != nil && (!s.exists || has.made != made):
		do = func(context.Context) { r.deregister(s, has) }
	case s.exists && has == nil:
		do = func(step context.Context) { r.register(ctx, step, s, made) }
	}
	if do == nil {
		s.busy = false
		if !s.exists && s.registered == nil {
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
		r.startStep(ctx, s)
	})
}

func (r *Registry) deregister(s *socket, has *registeredSocket) {
	has.handler.Deregister(has.Plugin)
	r.c.Log.Info("a plugin was deregistered", "plugin", has.Name, "socket", s.path)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.registered = nil
}

// register registers a plugin. It retries until it succeeds or one of its two contexts ends. The context named step
// ends when this step of the socket is cancelled, and ctx ends when the agent stops.
func (r *Registry) register(ctx, step context.Context, s *socket, made int) {
	again := retry.Backoff{FirstWindow: firstRetry, MaxWindow: lastRetry}
	logged := ""
	select {
	case <-time.After(r.registrationDelay(s.path)):
	case <-step.Done():
		return
	}
	for {
		has, err := r.registerOnce(step, s.path)
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
			r.c.Log.Info("a plugin has registered", "plugin", has.Name, "endpoint", has.Endpoint, "versions", has.Versions,
				"socket", s.path)
			r.mu.Lock()
			defer r.mu.Unlock()
			s.registered = has
			return
		}
		// The first failures are not logged, because the socket may be a leftover from before a reboot.
		if text := err.Error(); text != logged && again.HasFailed() {
			r.c.Log.Warn("cannot register a plugin, trying again", "socket", s.path, "error", err)
			logged = text
		}
		if _, err := again.Wait(step, 0, nil); err != nil {
			return
		}
	}
}

// registerOnce makes one attempt to register a plugin, and sends the result to the plugin. If only sending
// the result fails, it returns both the registered plugin and an error.
func (r *Registry) registerOnce(ctx context.Context, path string) (*registeredSocket, error) {
	conn, err := Dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	soon, stop := context.WithTimeout(ctx, connectTimeout)
	defer stop()
	if err := WaitReady(soon, conn); err != nil {
		return nil, fmt.Errorf("the plugin does not answer at its socket: %w", err)
	}
	client := registration.NewRegistrationClient(conn)
	short, stop := context.WithTimeout(ctx, infoTimeout)
	defer stop()
	info, err := client.GetInfo(short, &registration.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("failed to get plugin info using RPC GetInfo: %w", err)
	}
	has, err := r.addPlugin(ctx, path, info)
	problem := ""
	if err != nil {
		problem = "RegisterPlugin error -- " + err.Error()
	}
	short, stop = context.WithTimeout(ctx, notifyTimeout)
	defer stop()
	_, notified := client.NotifyRegistrationStatus(short,
		&registration.RegistrationStatus{PluginRegistered: err == nil, Error: problem})
	if err == nil && notified != nil {
		return has, fmt.Errorf("failed to send registration status: %w", notified)
	}
	return has, err
}

// addPlugin checks a plugin's information and registers it with its handler.
func (r *Registry) addPlugin(ctx context.Context, path string, info *registration.PluginInfo) (*registeredSocket, error) {
	handler, ok := r.c.Handlers[info.GetType()]
	if !ok {
		return nil, fmt.Errorf("no handler registered for plugin type: %.64q", info.GetType())
	}
	p := Plugin{Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions(), Socket: path}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	err := r.checkPlugin(p)
	if err == nil {
		err = handler.Validate(p)
	}
	if err != nil {
		return nil, fmt.Errorf("plugin validation failed with err: %w", err)
	}
	if err := handler.Register(ctx, p); err != nil {
		return nil, fmt.Errorf("plugin registration failed with err: %w", err)
	}
	return &registeredSocket{Plugin: p, handler: handler}, nil
}

// checkPlugin validates the information that is common to all types.
func (r *Registry) checkPlugin(p Plugin) error {
	if p.Name == "" || len(p.Name) > maxName || !utf8.ValidString(p.Name) ||
		strings.ContainsFunc(p.Name, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return fmt.Errorf("its name %.64q is invalid", p.Name)
	}
	if len(p.Versions) == 0 || len(p.Versions) > maxVersions {
		return fmt.Errorf("it reports %d supported versions: 1 to %d are valid", len(p.Versions), maxVersions)
	}
	for _, v := range p.Versions {
		if v == "" || len(v) > maxVersion {
			return fmt.Errorf("it reports the invalid version %.64q", v)
		}
	}
	if !filepath.IsAbs(p.Endpoint) || filepath.Clean(p.Endpoint) != p.Endpoint || len(p.Endpoint) > maxEndpoint {
		return fmt.Errorf("its endpoint %.128q is not an absolute path of at most %d bytes", p.Endpoint, maxEndpoint)
	}
	// Parent directories may be symbolic links, such as /var/run. A socket in a directory of a pod is rejected,
	// because the pod can create it.
	real, err := filepath.EvalSymlinks(p.Endpoint)
	if err != nil {
		return fmt.Errorf("its endpoint: %w", err)
	}
	if pods, err := filepath.EvalSymlinks(r.pods); err == nil && isWithin(real, pods) {
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
