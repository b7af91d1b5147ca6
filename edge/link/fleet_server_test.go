package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/edge/kube"
)

// TestFleetOfAServer is TestReturnOfAFleet with a real API server. ISLET_FLEET_KUBECONFIG is the kubeconfig of the administrator. All nodes
// are disconnected until the control plane has marked them NotReady. After the reconnection, all nodes must be Ready within two minutes,
// and the server may reject only a few requests with status 429. The nodes authenticate by impersonation. test/cluster/bench runs this
// test.
func TestFleetOfAServer(t *testing.T) {
	admin := os.Getenv("ISLET_FLEET_KUBECONFIG")
	if admin == "" {
		t.Skip("needs a control plane; make bench has one")
	}
	nodes, err := strconv.Atoi(os.Getenv("ISLET_FLEET"))
	if err != nil {
		t.Fatal(err)
	}
	w, dir, began := &wan{open: map[net.Conn]struct{}{}}, t.TempDir(), time.Now()
	f := &fleet{t: t, server: w}
	f.start(nodes, func(ctx context.Context, g *errgroup.Group, name string) {
		f.join(ctx, g, name, impersonated(t, admin, dir, name), dir)
	})
	defer f.stop()
	to, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseConnections()
	awaitReady(t, c, nodes, 10*time.Minute)
	t.Logf("all %d nodes joined within %s", nodes, time.Since(began).Round(time.Second))

	w.Disconnect()
	w.CloseConnections()
	awaitReady(t, c, 0, 10*time.Minute)
	before, refused := f.requests()
	began = time.Now()
	w.Reconnect()
	awaitReady(t, c, nodes, 2*time.Minute)
	took := time.Since(began)
	sleep(t.Context(), 30*time.Second) // the nodes have sent the requests that follow a reconnection
	all, tooMany := f.requests()
	all, tooMany = all-before, tooMany-refused
	t.Logf("all %d nodes are Ready %s after the link was back; %d requests, %d of them refused with 429", nodes,
		took.Round(time.Second), all, tooMany)
	if tooMany*100 >= all {
		t.Errorf("%d of %d requests were refused with 429", tooMany, all)
	}
}

// impersonated writes a kubeconfig with the administrator's credentials. Requests with this kubeconfig impersonate a node.
func impersonated(t *testing.T, admin, dir, name string) string {
	cfg, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	user := cfg.AuthInfos[cfg.Contexts[cfg.CurrentContext].AuthInfo]
	user.Impersonate, user.ImpersonateGroups = "system:node:"+name, []string{"system:nodes", "system:authenticated"}
	path := filepath.Join(dir, name+".conf")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitReady waits until the given number of nodes are Ready.
func awaitReady(t *testing.T, c *kube.Client, want int, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ready, last := -1, error(nil)
	for {
		list, err := kube.List[corev1.NodeList](ctx, c, "", metav1.ListOptions{})
		last = err
		if err == nil {
			ready = 0
			for i := range list.Items {
				if nodeReady(&list.Items[i]) {
					ready++
				}
			}
		}
		if ready == want {
			return
		}
		if !sleep(ctx, time.Second) {
			t.Fatalf("%d of the nodes are Ready after %s, not %d; the last look: %v", ready, within, want, last)
		}
	}
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// requests returns two numbers for the whole fleet: how many requests the server has answered, and how many of them it has rejected with
// status 429.
func (f *fleet) requests() (all, tooMany uint64) {
	for _, l := range f.links {
		for outcome, n := range l.Client().Requests() {
			if outcome.Status != 0 {
				all += n
			}
			if outcome.Status == http.StatusTooManyRequests {
				tooMany += n
			}
		}
	}
	return all, tooMany
}

// A wan is the network between a fleet and its API server.
type wan struct {
	mu   sync.Mutex
	down bool
	open map[net.Conn]struct{}
}

var errCut = errors.New("no route to host")

// Dial opens a connection through the network. It fails while the wan is down.
func (w *wan) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		return nil, fmt.Errorf("dial %s: %w", address, errCut)
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down { // the wan went down while dialing
		_ = c.Close()
		return nil, fmt.Errorf("dial %s: %w", address, errCut)
	}
	w.open[c] = struct{}{}
	return c, nil
}

func (w *wan) set(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

// Disconnect blocks new connections.
func (w *wan) Disconnect() { w.set(true) }

// Reconnect allows new connections again.
func (w *wan) Reconnect() { w.set(false) }

// CloseConnections closes all connections.
func (w *wan) CloseConnections() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.Close()
	}
	clear(w.open)
}
