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

// UserAgent is the User-Agent of requests. The API server uses the part before the slash as the field manager, so this part must be the
// same as a kubelet's.
const UserAgent = "kubelet/v1.37.2 (linux/" + runtime.GOARCH + ") islet"

// Media types of objects.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	asJSON   = "application/json"
)

// Config contains the dependencies and settings of a Client.
type Config struct {
	// Rest returns the server and the credentials. It is called before each request and must be fast. If it returns another pointer than
	// before, the credentials have changed, and the next request opens a new connection. The client uses only the fields for host, TLS,
	// tokens, proxy and dialing.
	Rest func() (*rest.Config, error)
	// Dial opens connections. If it is nil, the client uses the Dial function of the configuration that Rest returns, or else a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Now returns the time for verifying the server's certificate. The default is time.Now.
	Now func() time.Time
	// QPS and Burst limit the requests of the client, like kubeAPIQPS and kubeAPIBurst. Watches and requests with a context of
	// WithoutRateLimit are not limited. A QPS of 0 or less means no limit.
	QPS   float32
	Burst int
	// JSON selects JSON instead of protobuf. Use it for debugging, and for proxies that require JSON.
	JSON bool
	// BeforeRequest is called before each request and can reject the request with an error. AfterRequest receives the result: the HTTP
	// status, or 0 and the error. AfterRequest is not called if the caller has cancelled the request. Both may be nil.
	BeforeRequest func(ctx context.Context) error
	AfterRequest  func(status int, err error)
	// OnDate receives the Date header of each answer from a server with a verified certificate, and the NotAfter of that certificate.
	// OnDate may be nil.
	OnDate func(date, until time.Time)
	// AnswerBudget is the budget for the memory of answers. If it is nil, the client has its own budget.
	AnswerBudget *AnswerBudget
}

// A Client sends requests to one API server. Its methods are safe for concurrent use.
type Client struct {
	cfg     Config
	scheme  *apiruntime.Scheme
	codecs  serializer.CodecFactory
	answers *AnswerBudget
	params  apiruntime.ParameterCodec
	limiter flowcontrol.RateLimiter

	progress progress
	page     atomic.Int64 // items per page of a list; 0 means the default

	mu        sync.Mutex
	conn      *connection           // nil before the first request
	openConns map[net.Conn]struct{} // includes connections with former credentials
	counts    map[Outcome]uint64
	// servedVersions contains the version of a resource that the API server serves. A resource without an entry is served in its newest
	// version.
	servedVersions map[schema.GroupResource]schema.GroupVersionResource

	observeDuration atomic.Pointer[func(method string, took time.Duration)]
}

// Outcome is the result of a request.
type Outcome struct {
	Method string // HTTP method
	Status int    // HTTP status code; 0 if there was no answer
}

// New returns a client. The first request opens the connection.
func New(cfg Config) (*Client, error) {
	if cfg.Rest == nil {
		return nil, errors.New("kube: Rest is missing")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Client{cfg: cfg, scheme: newScheme(), answers: cfg.AnswerBudget, openConns: map[net.Conn]struct{}{}, counts: map[Outcome]uint64{},
		servedVersions: map[schema.GroupResource]schema.GroupVersionResource{}}
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

func (c *Client) serializer() limitedSerializer {
	return limitedSerializer{c.codecs.WithoutConversion(), c.scheme}
}

// Host returns the server's name and port, or "" while there are no credentials.
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

// Requests returns the number of requests for each outcome since the start.
func (c *Client) Requests() map[Outcome]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make(map[Outcome]uint64, len(c.counts))
	for o, n := range c.counts {
		counts[o] = n
	}
	return counts
}

// Observe sets a function that is called for each request with the time until the first byte of the answer. It replaces an earlier
// function. The function must be fast.
func (c *Client) Observe(f func(method string, took time.Duration)) { c.observeDuration.Store(&f) }

// CloseConnections closes all connections. Requests and watches on them fail. The next request opens a new connection. Call
// CloseConnections if the peer of the connections no longer answers.
func (c *Client) CloseConnections() {
	c.mu.Lock()
	open := make([]net.Conn, 0, len(c.openConns))
	for conn := range c.openConns {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// restClient returns client-go's client for a group and version, with the current credentials.
func (c *Client) restClient(gv schema.GroupVersion) (*rest.RESTClient, error) {
	conn, err := c.currentConnection()
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

// currentConnection returns the connection for the current credentials. A connection with former credentials is closed after the end of
// its last request.
func (c *Client) currentConnection() (*connection, error) {
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
		former.transport.CloseIdleConnections() // this call locks mu
	}
	return conn, nil
}
