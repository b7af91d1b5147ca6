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
	dirName    = "device-plugins" // below --root-dir, as in a kubelet
	socketName = "kubelet.sock"
)

const maxPlugins = 256

// Devices accepts plugins as providers. *devicemanager.Manager implements it.
type Devices interface {
	Connect(ctx context.Context, resource string, p devicemanager.Provider) (*devicemanager.Link, error)
}

// Config is the input of New.
type Config struct {
	Root    string // --root-dir
	Sockets *socket.Sockets
	Devices Devices
	Counter Counter // may be nil
	Log     *slog.Logger
}

// A Counter counts the events of device plugins for which a kubelet has metrics.
type Counter interface {
	Registered(resource string)
	Allocated(resource string, took time.Duration)
}

type noCounter struct{}

func (noCounter) Registered(string)               {}
func (noCounter) Allocated(string, time.Duration) {}

// Plugins serves the device plugins of this node.
type Plugins struct {
	c      Config
	dir    string
	server *rpc.Server
	ctx    context.Context // parent of all plugins' contexts; ends when Run returns
	stop   context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	current map[string]*plugin // by resource
}

// New returns new Plugins. It does no I/O.
func New(c Config) *Plugins {
	if c.Counter == nil {
		c.Counter = noCounter{}
	}
	p := &Plugins{c: c, dir: filepath.Join(c.Root, dirName), current: map[string]*plugin{}}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Listen opens the socket at which plugins register, and removes all sockets of an earlier run of the agent.
func (p *Plugins) Listen() error {
	err := readonly.MkdirAll(p.dir, 0o750)
	if err == nil {
		err = removeSockets(p.dir)
	}
	switch {
	case readonly.IsDiskFault(err): // the agent starts without device plugins
		p.c.Log.Error("cannot read the directory of device plugins: no plugin can register", "error", err)
	case err != nil:
		return fmt.Errorf("prepare the directory of device plugins: %w", err)
	}
	p.server, err = rpc.Listen(filepath.Join(p.dir, socketName), p.c.Sockets)
	return err
}

// removeSockets removes the sockets in dir. Running plugins notice this and register again.
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

// Close closes the socket if Run was not called after Listen. After Run it does nothing.
func (p *Plugins) Close() error {
	p.stop()
	p.group.Wait()
	return p.server.Close()
}

// Run serves registrations until ctx ends. It must be called after Listen. It creates the gRPC server when the first
// plugin connects.
func (p *Plugins) Run(ctx context.Context) error {
	defer p.group.Wait()
	defer p.stop()
	return p.server.Run(ctx, rpc.Delay, func(g *grpc.Server) { api.RegisterRegistrationServer(g, registration{Plugins: p}) })
}

type registration struct {
	*Plugins
	api.UnimplementedRegistrationServer
}

// Register connects to a plugin. The plugin's socket must be in the same directory as the agent's.
func (r registration) Register(ctx context.Context, req *api.RegisterRequest) (*api.Empty, error) {
	p := r.Plugins
	if err := checkRegistration(req.ResourceName, []string{req.Version}); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if req.Endpoint == "" || filepath.Base(req.Endpoint) != req.Endpoint || !filepath.IsLocal(req.Endpoint) {
		return nil, status.Errorf(codes.InvalidArgument, "endpoint %.80q is not the name of a socket in %s", req.Endpoint, p.dir)
	}
	if err := p.connect(ctx, req.ResourceName, filepath.Join(p.dir, req.Endpoint), req.Options); err != nil {
		p.c.Log.Warn("cannot register a device plugin", "resource", req.ResourceName, "endpoint", req.Endpoint, "error", err)
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &api.Empty{}, nil
}

// checkRegistration returns a kubelet's error for an unsupported version or an invalid resource name.
func checkRegistration(resource string, versions []string) error {
	if !slices.ContainsFunc(versions, func(v string) bool { return v == api.Version }) {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %.80q", api.Version, versions)
	}
	return devicemanager.CheckName(resource)
}
