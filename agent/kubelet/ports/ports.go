package ports

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/kubelet/access"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/review"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/connlimit"
)

// A port is a TCP port of a kubelet with its server.
type port struct {
	address     string
	number      int32
	what, field string // for messages
	run         func(*server.Server, context.Context, net.Listener) error
	ln          *connlimit.Listener
}

// Config is the configuration for Open.
type Config struct {
	*config.Config
	Link    *link.Link
	Cluster bool // there is a control plane, which authenticates tokens and authorizes users
	Log     *slog.Logger
}

// Ports are the open TCP ports. Run and Close close them.
type Ports struct{ all []port }

// A ListenError reports that a configured address cannot be used, for example because the port is in use.
type ListenError struct{ error }

// Unwrap returns the cause.
func (e ListenError) Unwrap() error { return e.error }

// Open listens on the configured ports. Run serves them.
func Open(ctx context.Context, a Config) (*Ports, error) {
	ports, err := a.kubeletPorts()
	if err != nil {
		return nil, err
	}
	out := &Ports{}
	for _, p := range ports {
		if p.ln, err = server.Listen(ctx, p.address, p.number, p.what, p.field, a.Log, a.apiServer()...); err != nil {
			return nil, errors.Join(ListenError{err}, out.Close())
		}
		out.all = append(out.all, p)
	}
	return out, nil
}

// Run serves all ports with srv until ctx ends.
func (o *Ports) Run(ctx context.Context, srv *server.Server) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range o.all {
		g.Go(func() error { return p.run(srv, ctx, p.ln) })
	}
	return g.Wait()
}

// Close closes the ports. Run closes them too, so a call of Close is necessary only if Run is not called.
func (o *Ports) Close() error {
	for _, p := range o.all {
		p.ln.Close() // an error means that Run has closed it
	}
	return nil
}

func (a Config) kubeletPorts() (ports []port, err error) {
	k := &a.Kubelet
	if n := *k.HealthzPort; n > 0 {
		ports = append(ports, port{
			address: k.HealthzBindAddress, number: n, what: "healthz", field: "healthzPort",
			run: (*server.Server).RunHealthz,
		})
	}
	if n := k.ReadOnlyPort; n > 0 {
		ports = append(ports, port{
			address: k.Address, number: n, what: "the read-only kubelet API", field: "readOnlyPort",
			run: (*server.Server).RunReadOnly,
		})
	}
	if !*k.EnableServer || k.Port == 0 {
		return ports, nil
	}
	filter := a.accessFilter()
	if why := filter.WhyNobody(); why != "" {
		a.Log.Info("the kubelet API is available only at the local socket, because its port would reject all requests",
			"port", k.Port, "because", why)
		return ports, nil
	}
	secured, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	secured = filter.TLS(secured)
	return append(ports, port{address: k.Address, number: k.Port, what: "the kubelet API", field: "port",
		run: func(s *server.Server, ctx context.Context, ln net.Listener) error {
			return s.RunAPI(ctx, ln, secured, filter.Wrap)
		}}), nil
}

// accessFilter returns the filter of port 10250. Without a control plane it has no authorizer and ignores tokens.
func (a Config) accessFilter() *access.Filter {
	authn, authz := &a.Kubelet.Authentication, &a.Kubelet.Authorization
	c := access.Config{
		NodeName: a.Node.Name, ClientCAFile: authn.X509.ClientCAFile, Anonymous: *authn.Anonymous.Enabled,
		AlwaysAllow: authz.Mode == kubelet.KubeletAuthorizationModeAlwaysAllow, Admitted: connlimit.ReportAuthenticated,
		Now: a.Link.Now, Log: a.Log,
	}
	if a.Cluster {
		client := a.Link.Client()
		if *authn.Webhook.Enabled {
			c.Tokens = review.NewTokens(client, authn.Webhook.CacheTTL.Duration)
		}
		c.Authorizer = review.NewAccess(client, authz.Webhook.CacheAuthorizedTTL.Duration, authz.Webhook.CacheUnauthorizedTTL.Duration)
	}
	return access.New(c)
}

// apiServer returns the API server's address, for which each port reserves connections. If the API server is
// configured by a name, it returns no address. The ports then reserve connections for the API server after
// its first authorized request.
func (a Config) apiServer() []netip.Addr {
	if !a.Cluster {
		return nil
	}
	host := a.Link.Client().Host()
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsLoopback() { // a proxy on this node has the same address as all other local processes
		return nil
	}
	return []netip.Addr{addr.Unmap()}
}

// strongCipherSuites contains the cipher suites for TLS 1.2 if none are configured. The list is taken from the
// CIS benchmark for Kubernetes. Go's default list includes suites without authenticated encryption.
var strongCipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// hostLogs is the directory of the files below /logs/.
const hostLogs = "/var/log"

// Paths returns the part of the configuration that controls the paths on the kubelet's ports. The server calls
// setLevel, which may be nil, to change the log level at run time. It calls allocated to get a pod with the resources
// that are allocated to the pod.
func Paths(c *config.Config, setLevel func(slog.Level), allocated func(*v1.Pod) *v1.Pod) server.Kubelet {
	k := &c.Kubelet
	p := server.Kubelet{Debugging: *k.EnableDebuggingHandlers, Profiling: *k.EnableProfilingHandler, Config: k, Flags: c.Flags()}
	if setLevel != nil && *k.EnableDebugFlagsHandler {
		p.SetLevel = func(v int) { setLevel(slog.Level(-v)) }
	}
	if *k.EnableSystemLogHandler {
		p.SystemLogs = hostLogs
	}
	if c.GateEnabled("ContainerCheckpoint") {
		p.Checkpoints = filepath.Join(c.Dirs.Root, "checkpoints")
		p.CheckpointTimeout = k.RuntimeRequestTimeout.Duration
	}
	if c.GateEnabled("KubeletAllocatedPodsEndpoint") {
		p.Allocated = allocated
	}
	return p
}
