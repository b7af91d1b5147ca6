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

// Meta durably stores small values. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config contains the dependencies and settings of a Link.
type Config struct {
	// Kubeconfig and BootstrapKubeconfig are paths. The files may be missing. If both paths are empty, the node has no cluster.
	Kubeconfig, BootstrapKubeconfig string
	// Left keeps the link of a node without kubeconfigs down, with ReasonNoCredentials, instead of in the phase Standalone.
	Left bool
	// CertDir is the directory of the node's certificates (--cert-dir).
	CertDir  string
	NodeName string
	// Hostname and NodeIPs are used in the serving certificate until SetAddresses is called.
	Hostname string
	NodeIPs  []netip.Addr
	// Rotate enables the renewal of the client certificate (rotateCertificates).
	Rotate bool
	// ServerTLSBootstrap makes the node request its serving certificate from the control plane.
	ServerTLSBootstrap bool
	// TLSCertFile and TLSKeyFile are the paths of a serving certificate that another program manages.
	TLSCertFile, TLSKeyFile string
	// QPS and Burst are kubeAPIQPS and kubeAPIBurst.
	QPS   float32
	Burst int
	// JSON makes requests use JSON instead of protobuf (contentType).
	JSON bool
	Meta Meta
	// Dial opens connections to the API server. The default is a net.Dialer. Only tests set Dial and Clock.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Clock returns the machine's time. The default is time.Now.
	Clock func() time.Time
	// IsClockSynced reports whether the kernel's clock is synchronized. Then no signed time is used: see RecordSigned. If it is nil, the
	// clock is not synchronized.
	IsClockSynced func() bool
	// NetworkChanged receives a value when the node's own network has changed. Changes of pod networks do not count. The link is then
	// probed, even during a back-off. NetworkChanged may be nil.
	NetworkChanged <-chan struct{}
	// Duplicates decides whether this machine may use the node's credentials. If it is nil, every machine may use them.
	Duplicates DuplicateDetector
	Log        *slog.Logger
}

// A DuplicateDetector detects another machine that uses the name of this node. *twin.Twin implements it.
type DuplicateDetector interface {
	// CheckOwner is called after each successful probe. If it returns no reason (why), the link is up. Otherwise the link is down, and
	// CheckOwner is called again after the returned time, or after a change. The error is the server's answer, or a connection error.
	CheckOwner(ctx context.Context, c *kube.Client) (why string, wait time.Duration, err error)
}

// A Link is a node's connection to its API server. All methods are safe for concurrent use,
// before, during and after Run.
type Link struct {
	cfg      Config
	clock    *clock
	states   *states
	identity *identity
	health   *health
	serving  *servingCert
	files    *credentialFiles
	client   *kube.Client
	answers  *kube.AnswerBudget // all clients of the server share it
}

// New reads the files. It opens no connection. Missing or broken files are not an error, because the node can run without the server. In
// that case, the State contains the reason.
func New(ctx context.Context, cfg Config) (*Link, error) {
	switch {
	case cfg.NodeName == "":
		return nil, errors.New("link: NodeName is missing")
	case cfg.CertDir == "":
		return nil, errors.New("link: CertDir is missing")
	case cfg.Meta == nil:
		return nil, errors.New("link: Meta is missing")
	}
	l := &Link{cfg: cfg, states: newStates(), answers: kube.NewAnswers()}
	var err error
	if l.clock, err = newClock(ctx, cfg); err != nil {
		return nil, err
	}
	l.identity = newIdentity(l)
	if l.client, err = kube.New(kube.Config{
		Rest: l.identity.restConfig, Dial: cfg.Dial, Now: l.clock.Now, QPS: cfg.QPS, Burst: cfg.Burst,
		JSON: cfg.JSON, AnswerBudget: l.answers,
		BeforeRequest: l.states.waitUntilUp, AfterRequest: func(status int, err error) { l.health.evaluateResult(status, err) },
		OnDate: func(date, until time.Time) { l.clock.evaluateDate(date, until, false) },
	}); err != nil {
		return nil, err
	}
	l.health = newHealth(l)
	l.serving = newServing(l)
	l.files = newFiles(l)
	if l.cfg.isStandalone() {
		l.states.set(State{Phase: Standalone})
	} else {
		l.identity.load()
	}
	return l, nil
}

func (c *Config) isStandalone() bool {
	return c.Kubeconfig == "" && c.BootstrapKubeconfig == "" && !c.Left
}

// Run maintains the credentials, certificates, state and clock until ctx ends.
func (l *Link) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	watched := l.files.watch()
	g.Go(func() error { return l.files.run(ctx, watched) })
	g.Go(func() error { return l.clock.run(ctx) })
	if !l.cfg.isStandalone() {
		g.Go(func() error { return l.identity.run(ctx) })
		g.Go(func() error { return l.health.run(ctx) })
		if l.cfg.ServerTLSBootstrap && l.cfg.TLSCertFile == "" {
			g.Go(func() error { return l.serving.run(ctx) })
		}
	}
	return g.Wait()
}

// Client returns the client for all requests to the API server. While the link is down, its requests fail immediately with kube.ErrNoLink.
// They always fail if the node has no cluster.
func (l *Link) Client() *kube.Client { return l.client }

// Now returns the time for verifying certificates, tokens and deadlines. It is never earlier than the proven lower bound.
func (l *Link) Now() time.Time { return l.clock.Now() }

// Times returns the times from which the node derives the current time, for messages.
func (l *Link) Times() Times { return l.clock.knownTimes() }

// ResetClock drops the lower bounds of the time. From then on, the machine's clock is used until the API server, a certificate or a signed
// time proves a later time. ResetClock also requests an immediate probe of a link that is down.
func (l *Link) ResetClock(ctx context.Context) error {
	err := l.clock.reset(ctx)
	l.identity.filesChanged()
	l.RequestProbe()
	return err
}

// RequestProbe requests a probe of the link. Call it, for example, after this machine has taken over the name of the node.
func (l *Link) RequestProbe() {
	signalChannel(l.health.suspicion)
	signalChannel(l.health.retryRequest)
}

// Server returns the URL of the API server in the node's credentials. It returns "" if the node has no credentials.
func (l *Link) Server() string {
	c, err := l.identity.restConfig()
	if err != nil {
		return ""
	}
	return c.Host
}

// State returns the state of the link.
func (l *Link) State() State {
	s, _ := l.states.get()
	return s
}

// IsDown reports whether the link is down because the server is unreachable.
func (l *Link) IsDown() bool {
	s := l.State()
	return s.Phase == Down && s.Reason == ReasonUnreachable
}

// Changed returns a new channel of capacity 1 that receives a value after each change of State. Call it
// once for each subscriber, because channels are never removed.
func (l *Link) Changed() kube.LinkSignal { return kube.LinkSignal{C: l.states.subscribe()} }

// WaitUp waits until the link is up. It returns an error if ctx ends first.
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

// ServingCertificate returns the newest certificate of the node's own server. It is suitable for tls.Config.GetCertificate.
func (l *Link) ServingCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return l.serving.currentCert()
}

// SetAddresses sets the current names and addresses of the node. If the control plane signs the serving certificate, and a name or address
// is missing in the current certificate, a new certificate is requested.
func (l *Link) SetAddresses(dnsNames []string, ips []netip.Addr) {
	l.serving.setNames(certNames{dns: slices.Clone(dnsNames), ips: slices.Clone(ips)})
}

// Expiry returns the expiry times of the client and serving certificates. A missing certificate has the zero time.
func (l *Link) Expiry() (client, serving time.Time) {
	return l.identity.expiryTime(), l.serving.expiryTime()
}

// ObserveRotation makes the link call f after each replacement of the serving certificate. The argument of f is the age of the former
// certificate.
func (l *Link) ObserveRotation(f func(age time.Duration)) { l.serving.observeRotation.Store(&f) }

// Failures returns the number of failed requests for client and serving certificates.
func (l *Link) Failures() (client, serving uint64) {
	return l.identity.failures.Load(), l.serving.failures.Load()
}
