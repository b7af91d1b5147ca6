package k3s

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
)

// A Config contains what a Server needs.
type Config struct {
	PKI       *PKI
	Address   string               // of the server, as nodes and the API server's Endpoints name it: host and port
	API       string               // host and port of the API server
	Client    kubernetes.Interface // an administrator; it may start to work later than the server
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Egress    string // egress-selector-mode: agent or disabled
	Name      string // the Node of the server itself
	Passwords Passwords
}

// Passwords are the two secrets of tokens. Without an agent-token, the agents have the server's. With one, the server's token does not work
// for agents. k3s pkg/daemons/control/deps/deps.go, genUsers.
type Passwords struct{ Server, Agent string }

// A Server answers as a k3s server does. Its methods are safe for concurrent use.
type Server struct {
	c         Config
	pki       *PKI
	passwords map[string]struct{ password, group string }
	routes    map[string]http.HandlerFunc
	api       http.Handler
	tunnel    *tunnel
	reads     chan struct{} // one element for each request that runs
	writes    chan struct{}

	mu       sync.Mutex
	ready    bool
	served   *tls.Certificate
	foreign  bool // whether served is of another CA
	validity time.Duration
	lies     map[string]http.Handler
	misissue func(*Issue)
	requests map[string]int
	lied     int
	servers  []string
	tunnels  map[net.Conn]string // the node of each tunnel that was opened
}

// New returns a server that does not listen yet.
func New(c Config) (*Server, error) {
	if c.Passwords.Agent == "" {
		c.Passwords.Agent = c.Passwords.Server
	}
	s := &Server{c: c, servers: []string{c.Address}, pki: c.PKI, reads: make(chan struct{}, 20), writes: make(chan struct{}, 10),
		lies:     map[string]http.Handler{},
		requests: map[string]int{}, tunnels: map[net.Conn]string{}}
	s.passwords = map[string]struct{ password, group string }{
		"node": {c.Passwords.Agent, agentGroup}, "server": {c.Passwords.Server, serverGroup}}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return nil, err
	}
	served, err := c.PKI.listener(host)
	if err != nil {
		return nil, err
	}
	s.served = &served
	s.tunnel = newTunnel(c)
	s.api = s.proxy()
	s.routes = s.paths()
	return s, nil
}

// Serve answers requests until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:     s,
		ErrorLog:    log.New(io.Discard, "", 0), // as k3s
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequestClientCert, // the handlers verify it
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.foreign {
					s.lied++
				}
				return s.served, nil
			},
		},
	}
	stop := context.AfterFunc(ctx, func() { srv.Close(); s.DropTunnels("") })
	defer stop()
	if err := srv.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Ready says that the controllers of the server run; before, a node gets no certificate. It starts to watch the Nodes.
func (s *Server) Ready(ctx context.Context) {
	s.setReady(true)
	go s.watchNodes(ctx)
}

func (s *Server) setReady(ready bool) { s.mu.Lock(); defer s.mu.Unlock(); s.ready = ready }

func (s *Server) coreReady() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.ready }

// SetValidity sets the validity of the certificates that nodes get from now on. 0 means a year.
func (s *Server) SetValidity(d time.Duration) { s.mu.Lock(); defer s.mu.Unlock(); s.validity = d }

// NodeToken returns the token with which agents join: the hash of the CA that /cacerts returns, and a user with a password. The hash is
// the hash of the file, because the file contains one certificate. k3s pkg/clientaccess/token.go, FormatTokenBytes.
func (s *Server) NodeToken() string { return s.hash() + "node:" + s.c.Passwords.Agent }

// ServerToken returns the content of the server's file node-token, if there is no agent-token. An agent takes only its password and sends
// the user "node". k3s pkg/agent/run.go, createProxyAndValidateToken.
func (s *Server) ServerToken() string { return s.hash() + "server:" + s.c.Passwords.Server }

// BootstrapToken returns a token of k3s token create: a bootstrap token of Kubernetes behind the hash.
func (s *Server) BootstrapToken(token string) string { return s.hash() + token }

func (s *Server) hash() string {
	digest := sha256.Sum256(s.pki.server.PEM())
	return "K10" + hex.EncodeToString(digest[:]) + "::"
}

// Requests returns how often each method and path was requested.
func (s *Server) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]int, len(s.requests))
	for k, n := range s.requests {
		all[k] = n
	}
	return all
}

// paths returns the handlers of the server's own paths. The user "server" may not use the paths of agents.
// k3s pkg/server/handlers/router.go, NewHandler. k3s takes any word after v1-; here it is k3s.
func (s *Server) paths() map[string]http.HandlerFunc {
	agents := func(h http.HandlerFunc) http.HandlerFunc {
		return s.only(s.limit(h), agentGroup, nodesGroup, bootstrap)
	}
	file := func(b []byte) http.HandlerFunc { return agents(write("text/plain", func() []byte { return b })) }
	return map[string]http.HandlerFunc{
		"/cacerts":                          write("text/plain", s.pki.server.PEM),
		"/ping":                             write("text/plain", func() []byte { return []byte("pong") }),
		"/v1-k3s/client-ca.crt":             file(s.pki.client.PEM()),
		"/v1-k3s/server-ca.crt":             file(s.pki.server.PEM()),
		"/v1-k3s/serving-kubelet.crt":       agents(s.servingKubelet),
		"/v1-k3s/client-kubelet.crt":        agents(s.clientKubelet),
		"/v1-k3s/client-kube-proxy.crt":     agents(s.clientOf("system:kube-proxy")),
		"/v1-k3s/client-k3s-controller.crt": agents(s.clientOf("system:k3s-controller")),
		"/v1-k3s/apiservers":                agents(s.apiServers),
		"/v1-k3s/config":                    agents(s.config),
		"/v1-k3s/readyz":                    agents(s.readyz),
		"/v1-k3s/connect":                   s.only(s.openTunnel, nodesGroup),
	}
}

// ServeHTTP answers a request with a lie, as the server, or with the answer of the API server.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests[r.Method+" "+r.URL.Path]++
	lie := s.lies[r.URL.Path]
	if lie != nil {
		s.lied++
	}
	s.mu.Unlock()
	route := s.routes[r.URL.Path]
	switch {
	case lie != nil:
		lie.ServeHTTP(w, r)
	case r.Method == http.MethodConnect:
		s.only(s.tunnel.connect, masters)(w, r)
	case route != nil:
		route(w, r)
	default:
		s.api.ServeHTTP(w, r)
	}
}

// limit refuses a request while as many run as the server permits: 20 that read and 10 others. Older releases have no limit.
// k3s pkg/server/handlers/router.go, maxNonMutatingAgentRequests; pkg/server/auth/auth.go, MaxInFlight.
func (s *Server) limit(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		running := s.writes
		if r.Method == http.MethodGet {
			running = s.reads
		}
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
			next(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		}
	}
}

func write(kind string, content func() []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(content()) // the client may be gone
	}
}

// readyz answers whether the controllers run. k3s pkg/server/handlers/handlers.go, Readyz.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if !s.coreReady() {
		refuse(w, r, http.StatusServiceUnavailable, errors.New("runtime core not ready"))
		return
	}
	write("text/plain", func() []byte { return []byte("ok") })(w, r)
}

// apiServers answers with the addresses of all servers. k3s reads the EndpointSlices of the Service kubernetes, and etcd. Here a test sets
// them. k3s pkg/server/handlers/handlers.go, APIServers.
func (s *Server) apiServers(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	servers := s.servers
	s.mu.Unlock()
	writeJSON(w, servers)
}

// SetServers replaces the addresses of all servers, which at first are the address of this server.
func (s *Server) SetServers(addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = addresses
}

// config answers with the settings of the server that agents use. An IPNet is an object with the address and the mask in base64, as
// encoding/json writes Go's type. k3s pkg/daemons/config/types.go, Control; pkg/server/handlers/handlers.go, Config.
func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	host, port, _ := net.SplitHostPort(s.c.Address) // New has checked it
	number, _ := net.LookupPort("tcp", port)
	pods, services := network("10.100.0.0/16"), network("10.96.0.0/16")
	dns := net.ParseIP("10.96.0.10")
	writeJSON(w, map[string]any{
		"ClusterDNSs": []net.IP{dns}, "ClusterIPRanges": []*net.IPNet{pods}, "ClusterDNS": dns, "ClusterDomain": "cluster.local",
		"ClusterIPRange": pods, "DisableCCM": false, "DisableHelmController": false, "DisableNPC": false, "DisableServiceLB": false,
		"EncryptSecrets": false, "EmbeddedRegistry": false, "FlannelBackend": "vxlan", "FlannelIPv6Masq": false,
		"FlannelExternalIP": false, "EgressSelectorMode": s.c.Egress, "ServiceIPRange": services,
		"ServiceIPRanges": []*net.IPNet{services}, "SupervisorMetrics": false, "AdvertisePort": number, "AdvertiseIP": host,
		"HTTPSPort": number, "SupervisorPort": number, "APIServerPort": 6444, "APIServerBindAddress": "127.0.0.1",
		"ServiceNodePortRange": map[string]int{"Base": 30000, "Size": 2768}, "DataDir": "/var/lib/rancher/k3s/server",
		"Disables": nil, "DisableAgent": false, "DisableAPIServer": false, "DisableControllerManager": false, "DisableETCD": false,
		"DisableKubeProxy": false, "DisableScheduler": false, "Rootless": false, "ServiceLBNamespace": "kube-system",
		"ExtraAPIArgs": nil, "ExtraControllerArgs": nil, "ExtraCloudControllerArgs": nil, "ExtraEtcdArgs": nil,
		"ExtraSchedulerAPIArgs": nil, "NoLeaderElect": false, "JoinURL": "", "IPSECPSK": "", "DefaultLocalStoragePath": "",
		"Skips": nil, "SystemDefaultRegistry": "", "ClusterInit": false, "ClusterReset": false, "ClusterResetRestorePath": "",
		"MinTLSVersion": "", "CipherSuites": nil, "ServerNodeName": s.c.Name, "VLevel": 0, "VModule": "", "BindAddress": "",
		"SANs":        []string{host, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		"SANSecurity": true, "PrivateIP": "",
	})
}

func network(cidr string) *net.IPNet {
	_, n, err := net.ParseCIDR(cidr)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", cidr, err)) // it is a constant
	}
	return n
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
