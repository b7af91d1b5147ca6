package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// UserAgent is how requests name their sender. The API server takes what stands
// before the slash for the field manager, so this is the kubelet's.
const UserAgent = "kubelet/v1.36.3 (linux/" + runtime.GOARCH + ") islet"

// How objects travel.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	asJSON   = "application/json"
)

// Config is what a Client is made of.
type Config struct {
	// Rest returns the server and the credentials. It is called before every request and must
	// be quick. If it returns another pointer than before, the credentials have changed, and the
	// next request opens a new connection with them. Only the fields about host, TLS, tokens,
	// proxy and dialing are used.
	Rest func() (*rest.Config, error)
	// Dial makes connections; nil: the Dial of Rest, or the network's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now is the time by which the server's certificate is judged; nil: time.Now.
	Now func() time.Time
	// QPS and Burst bound the requests of all who share the client, but for
	// watches and those of Unbound contexts, as kubeAPIQPS and kubeAPIBurst do; QPS 0 or below: no bound.
	QPS   float32
	Burst int
	// JSON has objects travel as JSON and not as protobuf: for who reads along, or a proxy
	// that understands nothing else.
	JSON bool
	// Before, when set, is asked before a request leaves and can refuse it with an
	// error; After is told what came of it: the HTTP status, or 0 and the error.
	// Requests that their caller cancelled are not told.
	Before func(ctx context.Context) error
	After  func(status int, err error)
	// Heard, when set, is told what each answer of a server whose certificate was verified
	// says of its time, and when that certificate ends.
	Heard func(date, until time.Time)
	// Answers is the memory that answers may take; nil: the client has its own.
	Answers *Answers
}

// A Client speaks to one API server. All methods may be called concurrently.
type Client struct {
	cfg     Config
	scheme  *apiruntime.Scheme
	codecs  serializer.CodecFactory
	answers *Answers
	params  apiruntime.ParameterCodec
	limiter flowcontrol.RateLimiter

	progress progress
	page     atomic.Int64 // items of a page of a list; 0: as many as usual

	mu     sync.Mutex
	conn   *connection           // nil before the first request
	open   map[net.Conn]struct{} // of this and of former credentials
	counts map[Outcome]uint64

	took atomic.Pointer[func(method string, took time.Duration)]
}

// Outcome is how a request ended.
type Outcome struct {
	Method string // of HTTP
	Status int    // of HTTP; 0: no answer
}

// New makes a client; it connects when the first request is made.
func New(cfg Config) (*Client, error) {
	if cfg.Rest == nil {
		return nil, errors.New("a client needs to know its server")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{cfg: cfg, scheme: newScheme(), answers: cfg.Answers, open: map[net.Conn]struct{}{}, counts: map[Outcome]uint64{}}
	if c.answers == nil {
		c.answers = NewAnswers()
	}
	c.progress.began = time.Now()
	c.codecs = serializer.NewCodecFactory(c.scheme)
	c.params = apiruntime.NewParameterCodec(c.scheme)
	if cfg.QPS > 0 {
		c.limiter = limiter{flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, max(cfg.Burst, 1))}
	} else {
		c.limiter = flowcontrol.NewFakeAlwaysRateLimiter()
	}
	return c, nil
}

func (c *Client) serializer() weighing { return weighing{c.codecs.WithoutConversion(), c.scheme} }

// Host is the server's name and port; "" while there are no credentials.
func (c *Client) Host() string {
	cfg, err := c.cfg.Rest()
	if err != nil {
		return ""
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return ""
	}
	return base.Host
}

// Requests gives how many requests ended how, since the start.
func (c *Client) Requests() map[Outcome]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[Outcome]uint64, len(c.counts))
	for o, n := range c.counts {
		counts[o] = n
	}
	return counts
}

// Observe has f be told how long each request took until its answer began. f must be
// quick; one that was given before is not told any more.
func (c *Client) Observe(f func(method string, took time.Duration)) { c.took.Store(&f) }

// CloseConnections cuts all connections, whatever they carry: requests and watches
// on them fail, the next request connects anew. It is for connections that lead
// nowhere.
func (c *Client) CloseConnections() {
	c.mu.Lock()
	open := make([]net.Conn, 0, len(c.open))
	for conn := range c.open {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// restClient gives the client of a group and version, with the credentials that
// count now.
func (c *Client) restClient(gv schema.GroupVersion) (*rest.RESTClient, error) {
	conn, err := c.connection()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rc, ok := conn.groups[gv]; ok {
		return rc, nil
	}
	rc, err := conn.client(c, gv)
	if err != nil {
		return nil, err
	}
	conn.groups[gv] = rc
	return rc, nil
}

// connection gives the connection of the credentials that count now. One of former
// credentials lives until what runs on it has ended.
func (c *Client) connection() (*connection, error) {
	cfg, err := c.cfg.Rest()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	former := c.conn
	if former != nil && former.config == cfg {
		c.mu.Unlock()
		return former, nil
	}
	conn, err := newConnection(c, cfg)
	if err == nil {
		c.conn = conn
	}
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", cfg.Host, err)
	}
	if former != nil {
		former.transport.CloseIdleConnections() // which takes mu
	}
	return conn, nil
}
