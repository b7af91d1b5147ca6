package link

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/edge/kube"
)

// Meta durably stores small values. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config has the dependencies and settings of a Link.
type Config struct {
	// Kubeconfig and BootstrapKubeconfig are paths of files that need not exist yet. If both are
	// empty, the node has no cluster.
	Kubeconfig, BootstrapKubeconfig string
	// CertDir is the directory of the node's certificates (--cert-dir).
	CertDir  string
	NodeName string
	// Hostname and NodeIPs are the serving certificate's names until SetAddresses is called.
	Hostname string
	NodeIPs  []netip.Addr
	// Rotate renews the client certificate (rotateCertificates).
	Rotate bool
	// ServerTLSBootstrap requests the serving certificate from the control plane.
	ServerTLSBootstrap bool
	// TLSCertFile and TLSKeyFile are a serving certificate that another program manages.
	TLSCertFile, TLSKeyFile string
	// QPS and Burst are kubeAPIQPS and kubeAPIBurst.
	QPS   float32
	Burst int
	// JSON makes requests use JSON instead of protobuf (contentType).
	JSON bool
	Meta Meta
	// Dial opens connections to the API server; nil: the network's. For tests, like Clock.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Clock is the machine's; nil: time.Now.
	Clock func() time.Time
	// NetworkChanged receives a value when the node's own network has changed, but not for changes
	// of pod networks. A link that is down then retries at once, and one that is up is probed. It
	// may be nil.
	NetworkChanged <-chan struct{}
	// Claim decides whether this machine may use the node's credentials; nil: it may.
	Claim Claim
	Log   *slog.Logger
}

// A Claim detects another machine with the name of this node. *twin.Twin is one.
type Claim interface {
	// Admit is called after each successful probe. If why is empty, the link is up. Otherwise it
	// is down, and Admit is called again after wait or after a change. The error is one of the
	// server or of the connection.
	Admit(ctx context.Context, c *kube.Client) (why string, wait time.Duration, err error)
}

// A Link is a node's connection to its API server. All methods are safe for concurrent use,
// before, during and after Run.
type Link struct {
	cfg      Config
	clock    *clock
	states   *states
	identity *identity
	health   *health
	serving  *serving
	files    *files
	client   *kube.Client
	answers  *kube.Answers // shared by all its clients
}

// New reads the files and opens no connection. Missing or broken files are not an error but a
// State: the node runs without the server.
func New(ctx context.Context, cfg Config) (*Link, error) {
	switch {
	case cfg.NodeName == "":
		return nil, errors.New("a link needs the node's name")
	case cfg.CertDir == "":
		return nil, errors.New("a link needs a directory for certificates")
	case cfg.Meta == nil:
		return nil, errors.New("a link needs a store")
	}
	l := &Link{cfg: cfg, states: newStates(), answers: kube.NewAnswers()}
	var err error
	if l.clock, err = newClock(ctx, cfg); err != nil {
		return nil, err
	}
	l.identity = newIdentity(l)
	if l.client, err = kube.New(kube.Config{
		Rest: l.identity.rest, Dial: cfg.Dial, Now: l.clock.Now, QPS: cfg.QPS, Burst: cfg.Burst,
		JSON: cfg.JSON, Answers: l.answers,
		Before: l.states.admit, After: func(status int, err error) { l.health.after(status, err) },
		Heard: func(date, until time.Time) { l.clock.answered(date, until, false) },
	}); err != nil {
		return nil, err
	}
	l.health = newHealth(l)
	l.serving = newServing(l)
	l.files = newFiles(l)
	if l.standalone() {
		l.states.set(State{Phase: Standalone})
	} else {
		l.identity.load()
	}
	return l, nil
}

func (l *Link) standalone() bool {
	return l.cfg.Kubeconfig == "" && l.cfg.BootstrapKubeconfig == ""
}

// Run maintains credentials, certificates, state and clock until ctx ends.
func (l *Link) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	watched := l.files.watch()
	g.Go(func() error { return l.files.run(ctx, watched) })
	if !l.standalone() {
		g.Go(func() error { return l.identity.run(ctx) })
		g.Go(func() error { return l.health.run(ctx) })
		g.Go(func() error { return l.clock.run(ctx) })
		if l.cfg.ServerTLSBootstrap && l.cfg.TLSCertFile == "" {
			g.Go(func() error { return l.serving.run(ctx) })
		}
	}
	return g.Wait()
}

// Client returns the client for all requests to the API server. While the link is down, and
// without a cluster, its requests fail at once with kube.ErrNoLink.
func (l *Link) Client() *kube.Client { return l.client }

// Now returns the time for judging certificates, tokens and deadlines. It is never before the
// proven lower bound.
func (l *Link) Now() time.Time { return l.clock.Now() }

// Times returns what is known about the time, for messages.
func (l *Link) Times() Times { return l.clock.times() }

// ResetClock drops the lower bound of the time: the machine's clock is used until the API server
// or a certificate proves a later time. A link that is down is retried at once.
func (l *Link) ResetClock(ctx context.Context) error {
	err := l.clock.reset(ctx)
	l.identity.filesChanged()
	l.Doubt()
	return err
}

// Doubt probes the link at once, such as after the Claim has changed.
func (l *Link) Doubt() {
	poke(l.health.suspicion)
	poke(l.health.retried)
}

// State returns the state of the link.
func (l *Link) State() State {
	s, _ := l.states.get()
	return s
}

// Down reports whether the server is known to be unreachable, as without a network.
func (l *Link) Down() bool {
	s := l.State()
	return s.Phase == Down && s.Reason == ReasonUnreachable
}

// Changed returns a new channel of capacity 1 that receives a value after each change of State.
// Call it once per subscriber; a channel is never removed.
func (l *Link) Changed() <-chan struct{} { return l.states.subscribe() }

// WaitUp returns when the link is up, or with the error of ctx.
func (l *Link) WaitUp(ctx context.Context) error {
	for {
		s, moved := l.states.get()
		if s.Phase == Up {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ServingCertificate returns the newest certificate of the node's own server. It is a
// tls.Config.GetCertificate.
func (l *Link) ServingCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return l.serving.certificate()
}

// SetAddresses sets the current names and addresses of the node; it may be called often. If the
// control plane signs the serving certificate, a new one is requested when a name is missing in
// it.
func (l *Link) SetAddresses(dnsNames []string, ips []netip.Addr) {
	l.serving.setNames(names{dns: slices.Clone(dnsNames), ips: slices.Clone(ips)})
}

// Expiry returns the end of the validity of the client's and the serving certificate; zero for a
// missing certificate.
func (l *Link) Expiry() (client, serving time.Time) {
	return l.identity.expiry(), l.serving.expiry()
}

// Failures returns how often a request for a client's or a serving certificate has failed.
func (l *Link) Failures() (client, serving uint64) {
	return l.identity.failures.Load(), l.serving.failures.Load()
}
