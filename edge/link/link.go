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

// Meta keeps small values durably; store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Config says who the node is and where it keeps that.
type Config struct {
	// Kubeconfig and BootstrapKubeconfig are files, of which either may not exist yet.
	// Both empty: the node stands alone.
	Kubeconfig, BootstrapKubeconfig string
	// CertDir holds the certificates the node makes or is given; --cert-dir.
	CertDir  string
	NodeName string
	// Hostname and NodeIPs are what a serving certificate is for, until SetAddresses.
	Hostname string
	NodeIPs  []netip.Addr
	// Rotate renews the client certificate; rotateCertificates.
	Rotate bool
	// ServerTLSBootstrap lets the control plane sign the serving certificate.
	ServerTLSBootstrap bool
	// TLSCertFile and TLSKeyFile are a serving certificate that somebody else keeps.
	TLSCertFile, TLSKeyFile string
	// QPS and Burst are kubeAPIQPS and kubeAPIBurst.
	QPS   float32
	Burst int
	// JSON is contentType: what is said to the API server is not protobuf.
	JSON bool
	Meta Meta
	// Dial makes connections to the API server; nil: the network's. Only tests have another,
	// as of Clock.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Clock is the machine's; nil: time.Now.
	Clock func() time.Time
	// NetworkChanged may be nil; a signal, that the way out changed (and not the network
	// of a pod), makes a node that is down try at once and one that is up look again.
	NetworkChanged <-chan struct{}
	// Claim says whether this machine may use the node's credentials; nil: it may.
	Claim Claim
	Log   *slog.Logger
}

// A Claim tells this machine from another one with the name of the node. *twin.Twin is one.
type Claim interface {
	// Admit is asked after each probe that the server answered. An empty why: the link is up.
	// Else it is down, and Admit is asked again after wait, or when something changed. The
	// error is one of the server or of the link.
	Admit(ctx context.Context, c *kube.Client) (why string, wait time.Duration, err error)
}

// A Link is a node's way to its API server. All methods may be called concurrently,
// before, while and after Run runs.
type Link struct {
	cfg      Config
	clock    *clock
	states   *states
	identity *identity
	health   *health
	serving  *serving
	files    *files
	client   *kube.Client
	answers  *kube.Answers // of all its clients
}

// New reads what there is and connects to nothing. That files are missing or broken is
// no error but a State: the node runs meanwhile.
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
		Rest: l.identity.rest, Dial: cfg.Dial, Now: l.clock.Now, QPS: cfg.QPS, Burst: cfg.Burst, JSON: cfg.JSON, Answers: l.answers,
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

// Run keeps identity, certificates, state and clock until ctx ends.
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

// Client is the client for everything that the node asks its API server. Its requests
// fail at once while the link is down (kube.Answered tells) and with a standalone node.
func (l *Link) Client() *kube.Client { return l.client }

// Now is the time to judge certificates, tokens and deadlines of others by: never
// before a time that is proven to have passed.
func (l *Link) Now() time.Time { return l.clock.Now() }

// Times gives what is known of the time, for people.
func (l *Link) Times() Times { return l.clock.times() }

// ResetClock forgets what was taken for proven of the time: the machine's clock counts,
// until the API server or a certificate says more. A link that is down is tried at once.
func (l *Link) ResetClock(ctx context.Context) error {
	err := l.clock.reset(ctx)
	l.identity.filesChanged()
	l.Doubt()
	return err
}

// Doubt has the link look at once whether it is up, such as after the Claim has changed.
func (l *Link) Doubt() {
	poke(l.health.suspicion)
	poke(l.health.retried)
}

// State tells how things stand.
func (l *Link) State() State {
	s, _ := l.states.get()
	return s
}

// Down reports whether it is known that there is no way to the server, as without a network.
func (l *Link) Down() bool {
	s := l.State()
	return s.Phase == Down && s.Reason == ReasonUnreachable
}

// Changed gives a channel of capacity 1 that is signalled when the State changed. Each
// subscriber calls it once and keeps the channel: it is never given up.
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

// ServingCertificate is the tls.Config.GetCertificate of the node's own server. It always
// gives the newest.
func (l *Link) ServingCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return l.serving.certificate()
}

// SetAddresses tells under which names and addresses the node is known now, as often as
// one likes. A serving certificate that the control plane signs is asked for anew when it
// lacks one.
func (l *Link) SetAddresses(dnsNames []string, ips []netip.Addr) {
	l.serving.setNames(names{dns: slices.Clone(dnsNames), ips: slices.Clone(ips)})
}

// Expiry tells until when the client's and the serving certificate are valid; zero for
// one that there is not.
func (l *Link) Expiry() (client, serving time.Time) {
	return l.identity.expiry(), l.serving.expiry()
}

// Failures tells how often a client's or a serving certificate could not be had from
// the control plane.
func (l *Link) Failures() (client, serving uint64) {
	return l.identity.failures.Load(), l.serving.failures.Load()
}
