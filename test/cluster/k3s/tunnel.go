package k3s

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/rancher/remotedialer"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// streamPort is the port of containerd's streams, which the tunnel reaches besides the kubelet's. k3s pkg/daemons/config/types.go,
// StreamServerPort.
const streamPort = "10010"

// egressLabel is the label of a Node whose agent permits connections to pods. k3s pkg/nodeconfig/nodeconfig.go, ClusterEgressLabel.
const egressLabel = "egress.k3s.io/cluster"

// A tunnel connects the API server with nodes, through the connections that the nodes have opened. k3s pkg/daemons/control/tunnel.go.
type tunnel struct {
	c      Config
	server *remotedialer.Server

	mu    sync.Mutex
	nodes map[string]target // by address
}

// A target is a Node with a given address.
type target struct {
	node, port string
	egress     bool
}

func newTunnel(c Config) *tunnel {
	// The client of a session is the node of its certificate. k3s pkg/daemons/control/tunnel.go, authorizer.
	authorize := func(r *http.Request) (string, bool, error) {
		node, ok := strings.CutPrefix(userOf(r).name, nodePrefix)
		return node, ok, nil
	}
	return &tunnel{c: c, nodes: map[string]target{}, server: remotedialer.New(authorize, refuse)}
}

// watchNodes follows the Nodes until the context ends.
func (s *Server) watchNodes(ctx context.Context) {
	changed := func(o any) {
		if node, ok := o.(*corev1.Node); ok {
			s.tunnel.setNode(node)
			_ = s.ownPassword(ctx, node) // a conflict is repeated with the node's next status
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(s.c.Client.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) },
		},
	})
	informer.Run(ctx.Done())
}

// setNode stores the addresses of a Node. k3s pkg/daemons/control/tunnel.go, onChangeNode.
func (t *tunnel) setNode(node *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, egress := node.Labels[egressLabel]
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if node.DeletionTimestamp != nil {
			delete(t.nodes, a.Address)
			continue
		}
		port := strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))
		t.nodes[a.Address] = target{node: node.Name, port: port, egress: egress}
	}
}

// connect answers a CONNECT of the API server. k3s pkg/daemons/control/tunnel.go, serveConnect.
func (t *tunnel) connect(w http.ResponseWriter, r *http.Request) {
	back, err := t.dial(r.Context(), r.Host)
	if err != nil {
		refuse(w, r, http.StatusBadGateway, err)
		return
	}
	w.WriteHeader(http.StatusOK)
	front, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		back.Close()
		refuse(w, r, http.StatusInternalServerError, err)
		return
	}
	splice(front, buffered.Reader, back)
}

// splice copies in both directions until one ends, as k3s pkg/daemons/control/proxy/proxy.go.
func splice(front net.Conn, buffered *bufio.Reader, back net.Conn) {
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(back, buffered); ended <- struct{}{} }()
	go func() { _, _ = io.Copy(front, back); ended <- struct{}{} }()
	<-ended
	front.Close()
	back.Close()
	<-ended
}

// dial connects to a port of a node. The kubelet's port and containerd's are dialed through the node's session, at the node's loopback
// address. The same holds for a name instead of an address. Other ports are dialed through the session only if the Node has the label.
// Without a session, the kubelet is not dialed. Every other error leads to a direct connection, even to the loopback address, which is then
// the server's own. k3s pkg/daemons/control/tunnel.go, dialBackend.
func (t *tunnel) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var node string
	var kubelet, through bool
	if net.ParseIP(host) != nil {
		t.mu.Lock()
		n, known := t.nodes[host]
		t.mu.Unlock()
		if known {
			node, kubelet = n.node, n.port != "0" && (port == n.port || port == streamPort)
			through = kubelet || n.egress
		}
	} else {
		node, kubelet, through = host, true, true
	}
	if node == t.c.Name {
		through = false
	} else if kubelet {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	if through {
		conn, err := t.server.Dialer(node)(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		if kubelet && strings.HasPrefix(err.Error(), "failed to find Session for client") {
			return nil, err
		}
	}
	return t.c.Dial(ctx, "tcp", address)
}

// Connected reports whether a node has opened its tunnel.
func (s *Server) Connected(node string) bool {
	for _, n := range s.tunnel.server.ListClients() {
		if n == node {
			return true
		}
	}
	return false
}

// DialThrough asks a node to dial an address, whatever it is, through the node's tunnel. An attacker with the server can do the same. The
// result is a connection even if the node refuses it: the first read then fails.
func (s *Server) DialThrough(ctx context.Context, node, network, address string) (net.Conn, error) {
	return s.tunnel.server.Dialer(node)(ctx, network, address)
}

type connKey struct{}

// openTunnel answers the WebSocket of a node.
func (s *Server) openTunnel(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		s.mu.Lock()
		s.tunnels[c] = strings.TrimPrefix(userOf(r).name, nodePrefix)
		s.mu.Unlock()
		defer func() { s.mu.Lock(); delete(s.tunnels, c); s.mu.Unlock() }()
	}
	s.tunnel.server.ServeHTTP(w, r)
}

// DropTunnels closes the tunnels of a node, or all tunnels if the name is empty.
func (s *Server) DropTunnels(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, of := range s.tunnels {
		if node == "" || node == of {
			c.Close()
		}
	}
}
