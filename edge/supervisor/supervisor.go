package supervisor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/remotedialer"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/retry"
)

// FormerLabels and FormerAnnotations are keys that k3s' agent sets on its Node. The servers act on them, also on the Node of a moved node.
// With the label they connect to pods through the node's tunnel, which dialNode refuses. From the annotations, their cloud controller
// writes addresses into the Node that the machine may no longer have. If an annotation is missing, the controller uses the label with the
// same key, which early versions of k3s have set. After a way back, k3s' agent sets them again. k3s pkg/nodeconfig/nodeconfig.go,
// SetNodeConfigLabels; pkg/cloudprovider/cloudprovider.go; pkg/cloudprovider/instances.go, InstanceMetadata.
var (
	FormerLabels      = []string{"egress.k3s.io/cluster"}
	FormerAnnotations = []string{
		"k3s.io/internal-ip", "k3s.io/external-ip", "k3s.io/hostname", "k3s.io/internal-dns", "k3s.io/external-dns",
	}
)

// Link is the node's connection to the API server. *link.Link implements it.
type Link interface {
	// ClientCertificate returns the certificate in use, or nil.
	ClientCertificate() *tls.Certificate
	Changed() kube.LinkSignal
	Now() time.Time
}

// Config contains the dependencies and settings of a Supervisor.
type Config struct {
	Directory k3s.Directory // written by islet join
	Node      string
	// Address and Port are those on which the kubelet API of this node listens.
	Address string
	Port    int32
	// Addresses returns the node's current IP addresses.
	Addresses func() []string
	Link      Link
	Log       *slog.Logger
}

// A Supervisor keeps the certificates and the tunnels of a node.
type Supervisor struct {
	cfg     Config
	changed <-chan struct{}
	budget  remotedialer.Budget
	// renewNow has capacity 1. A value means that a certificate may be due, or that an attempt may succeed now.
	renewNow chan struct{}

	// The other fields are used only by renewal.

	issued      map[k3s.Purpose]time.Time   // when this process has received a certificate
	paces       map[k3s.Purpose]*retry.Pace // limit the renewals
	refreshed   time.Time                   // when the CAs were read
	warned      bool                        // about a certificate with a short life
	requested   []netip.Addr                // addresses of the last serving certificate that this process has received
	addressPace *retry.Pace                 // limits the renewals because of new addresses, from a minute up to minInterval
}

// New returns a Supervisor. It does no I/O.
func New(cfg Config) (*Supervisor, error) {
	if cfg.Directory == "" || cfg.Node == "" {
		return nil, errors.New("supervisor: the directory and the name of the node are required")
	}
	pace := func(first time.Duration) *retry.Pace { return &retry.Pace{First: first, Now: cfg.Link.Now} }
	return &Supervisor{
		cfg: cfg, changed: cfg.Link.Changed().C, renewNow: make(chan struct{}, 1), issued: map[k3s.Purpose]time.Time{},
		paces:       map[k3s.Purpose]*retry.Pace{k3s.ForClient: pace(minInterval), k3s.ForServing: pace(minInterval)},
		addressPace: pace(0),
		refreshed:   cfg.Link.Now().Add(firstRefresh - refreshInterval), // islet join or an earlier process has read the CAs
	}, nil
}

// Run works until ctx ends.
func (s *Supervisor) Run(ctx context.Context) error {
	record := s.waitForRecord(ctx)
	if record == nil {
		return nil
	}
	t := newTunnels(s, record)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.renew(ctx, record) })
	g.Go(func() error { return t.run(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-s.changed:
				signal(s.renewNow)
				t.networkChanged()
			}
		}
	})
	return g.Wait()
}

// recordInterval is the interval of reading a record that cannot be read.
const recordInterval = time.Minute

// waitForRecord reads the record of the join. It returns nil after ctx has ended.
func (s *Supervisor) waitForRecord(ctx context.Context) *k3s.Record {
	logged := ""
	for {
		r, err := s.cfg.Directory.Record()
		if err == nil && r.Node != s.cfg.Node {
			err = fmt.Errorf("it was written for the node %q, and this node is %q: set --hostname-override, or run islet join again",
				r.Node, s.cfg.Node)
		}
		if err == nil {
			return r
		}
		if text := err.Error(); text != logged {
			logged = text
			s.cfg.Log.Error("the node cannot renew its certificates and has no tunnel to its k3s servers", "directory", s.cfg.Directory,
				"error", err)
		}
		wait := time.NewTimer(retry.Jitter(recordInterval))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
	}
}

// signal sends a value on a channel of capacity 1, unless the channel already has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// addresses returns the node's current addresses.
func (s *Supervisor) addresses() (ips []netip.Addr) {
	for _, text := range s.cfg.Addresses() {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip.Unmap().WithZone(""))
		}
	}
	return ips
}
