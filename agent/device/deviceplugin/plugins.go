package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/plugin/rpc"
	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/internal/socket"
)

const (
	dirName    = "device-plugins" // below --root-dir, as a kubelet has it
	socketName = "kubelet.sock"
)

const maxPlugins = 256

// Devices takes the devices of plugins. *device.Manager is one.
type Devices interface {
	Connect(ctx context.Context, resource string, p devicemanager.Provider) (*devicemanager.Link, error)
}

// Config is what Plugins need.
type Config struct {
	Root    string // --root-dir
	Sockets *socket.Sockets
	Devices Devices
	Counted Counter // nil: nobody counts
	Log     *slog.Logger
}

// A Counter is told what a kubelet counts of device plugins.
type Counter interface {
	Registered(resource string)
	Allocated(resource string, took time.Duration)
}

type noCounter struct{}

func (noCounter) Registered(string)               {}
func (noCounter) Allocated(string, time.Duration) {}

// Plugins are the device plugins of this node.
type Plugins struct {
	c      Config
	dir    string
	server *rpc.Server
	ctx    context.Context // of all plugins: ends with Run
	stop   context.CancelFunc
	group    sync.WaitGroup

	mu  sync.Mutex
	current map[string]*plugin // by resource
}

// New touches nothing.
func New(c Config) *Plugins {
	if c.Counted == nil {
		c.Counted = noCounter{}
	}
	p := &Plugins{c: c, dir: filepath.Join(c.Root, dirName), current: map[string]*plugin{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Listen makes the socket at which plugins register, and removes those of before.
func (p *Plugins) Listen() error {
	err := readonly.MkdirAll(p.dir, 0o750)
	if err == nil {
		err = removeSockets(p.dir)
	}
	switch {
	case readonly.Fault(err): // which is no reason not to start
		p.c.Log.Error("the directory of device plugins cannot be read: none can register", "error", err)
	case err != nil:
		return fmt.Errorf("prepare the directory of device plugins: %w", err)
	}
	p.server, err = rpc.Listen(filepath.Join(p.dir, socketName), p.c.Sockets)
	return err
}

// removeSockets lets plugins that run know that they have to register anew.
func removeSockets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close is for who called Listen, but not Run; after Run it does nothing.
func (p *Plugins) Close() error {
	p.stop()
	p.group.Wait()
	return p.server.Close()
}

// Run takes up plugins until ctx ends, after Listen. The server is made for the first of them.
func (p *Plugins) Run(ctx context.Context) error {
	defer p.group.Wait()
	defer p.stop()
	return p.server.Run(ctx, func(g *grpc.Server) { api.RegisterRegistrationServer(g, registration{Plugins: p}) })
}

type registration struct {
	*Plugins
	api.UnimplementedRegistrationServer
}

// Register takes up a plugin that serves at a socket beside ours.
func (r registration) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	p := r.Plugins
	if err := check(req.ResourceName, []string{req.Version}); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if req.Endpoint == "" || filepath.Base(req.Endpoint) != req.Endpoint || !filepath.IsLocal(req.Endpoint) {
		return nil, status.Errorf(codes.InvalidArgument, "endpoint %.80q is not the name of a socket in %s", req.Endpoint, p.dir)
	}
	if err := p.connect(ctx, req.ResourceName, filepath.Join(p.dir, req.Endpoint), req.Options); err != nil {
		p.c.Log.Warn("a device plugin could not be registered", "resource", req.ResourceName, "endpoint", req.Endpoint, "error", err)
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &api.Empty{}, nil
}

// check says what is wrong with a plugin in a kubelet's words.
func check(resource string, versions []string) error {
	if !slices.ContainsFunc(versions, func(v string) bool { return v == api.Version }) {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %.80q", api.Version, versions)
	}
	return devicemanager.CheckName(resource)
}

// connect makes the plugin at a socket the one of a resource, in place of another.
func (p *Plugins) connect(ctx context.Context, resource, socket string, options *api.DevicePluginOptions) error {
	x, err := p.dial(ctx, resource, socket, options)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	previous := p.current[resource]
	if previous == nil && len(p.current) >= maxPlugins || p.ctx.Err() != nil {
		x.close()
		return fmt.Errorf("this node has %d device plugins already", len(p.current))
	}
	if x.link, err = p.c.Devices.Connect(ctx, resource, x); err != nil {
		x.close()
		return err
	}
	if previous != nil {
		previous.stop(nil)
	}
	p.current[resource] = x
	var life context.Context
	life, x.stop = context.WithCancelCause(p.ctx)
	p.c.Counted.Registered(resource)
	p.c.Log.Info("device plugin registered", "resource", resource, "socket", socket)
	p.group.Go(func() { p.follow(life, x) })
	return nil
}

// follow takes the lists of a plugin until it is gone.
func (p *Plugins) follow(ctx context.Context, x *plugin) {
	err := x.watch(ctx)
	if why := context.Cause(ctx); why != nil && why != ctx.Err() {
		p.c.Log.Warn("device plugin has to give way", "resource", x.resource, "socket", x.socket, "error", why)
	} else if why == nil {
		p.c.Log.Warn("device plugin is gone", "resource", x.resource, "socket", x.socket, "error", err)
	}
	x.stop(nil)
	x.close()
	if p.ctx.Err() == nil { // else the agent ends, and the plugin may be there still
		x.link.Close()
	}
	p.mu.Lock()
	if p.current[x.resource] == x {
		delete(p.current, x.resource)
	}
	p.mu.Unlock()
}
