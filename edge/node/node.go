package node

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/kube"
)

// metaNode is the key under which the store has the last Node, as base64 of protobuf.
const metaNode = "node"

// Meta keeps small values. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// A History knows whether the API server is where it was. *history.History is one.
type History interface {
	Doubt()                                                    // a renewal failed
	Settle(ctx context.Context) error                          // called before each renewal
	Renewed(ctx context.Context, version string, at time.Time) // the server acknowledged one
	Missing(ctx context.Context)                               // there is no Lease
	Rewritten() <-chan struct{}                                // what is known of the Node no longer holds
}

// anyHistory believes every server.
type anyHistory struct{}

func (anyHistory) Doubt()                                     {}
func (anyHistory) Settle(context.Context) error               { return nil }
func (anyHistory) Renewed(context.Context, string, time.Time) {}
func (anyHistory) Missing(context.Context)                    {}
func (anyHistory) Rewritten() <-chan struct{}                 { return nil }

// A Claim tells this machine from another one with the name of the node. *twin.Twin is one.
type Claim interface {
	// Annotations are those of the Lease that the next renewal sets; created: it creates the Lease.
	Annotations(created bool) map[string]any
	// Renewed takes the Lease that the server has after a renewal, and reports whether it is
	// to be renewed again at once.
	Renewed(ctx context.Context, m *metav1.ObjectMeta) (again bool)
	// Conditions are further ones of the Node, of types in Config.Own.
	Conditions() []v1.NodeCondition
}

// anyClaim has no twin.
type anyClaim struct{}

func (anyClaim) Annotations(bool) map[string]any                  { return nil }
func (anyClaim) Renewed(context.Context, *metav1.ObjectMeta) bool { return false }
func (anyClaim) Conditions() []v1.NodeCondition                   { return nil }

// Facts are what the machine is like now.
type Facts struct {
	Capacity        v1.ResourceList
	Allocatable     v1.ResourceList
	Addresses       []v1.NodeAddress // InternalIP, Hostname
	Info            v1.NodeSystemInfo
	Images          []v1.ContainerImage // largest first; NodeStatusMaxImages is applied here
	RuntimeHandlers []v1.NodeRuntimeHandler
	Features        *v1.NodeFeatures
	// Declared are the features of pods that need a node which knows them, sorted
	// (KEP-5328).
	Declared []string
	NotReady []string // why pods cannot run here, each as a kubelet words it; none: Ready
	// VolumesInUse are those that nobody may detach.
	VolumesInUse []v1.UniqueVolumeName
	// Conditions are further ones of the node's own; of those that Config.Own names.
	Conditions []v1.NodeCondition
	// MemoryPressure and the like say what there is too little of; empty: there is
	// enough. The reason is the kubelet's.
	MemoryPressure, DiskPressure, PIDPressure bool
}

// Config is what a Node needs.
type Config struct {
	Client *kube.Client
	Name   string
	Facts  func(ctx context.Context) (Facts, error) // called often, so it must be cheap
	Meta   Meta
	// Changed is told the Node whenever its labels, taints, podCIDRs, UID or the resources
	// that others advertise (its capacity has no others) are different from before, and at
	// once what the store has; it must not block. Nil: nobody.
	Changed func(*v1.Node)

	// History is told of each renewal of the Lease, and asked before one that comes after
	// trouble. When it was rewritten the Node is read anew. Nil: nobody cares.
	History History

	// Claim goes to the Lease with its renewals. Nil: there is none.
	Claim Claim

	// Touched is called after what is done again and again: a renewal of the Lease, a look at
	// the node. It must not block. Nil: nobody.
	Touched func()

	// Kept are annotations that are set right whenever they differ; what is to have an
	// empty value is taken away.
	Kept map[string]string
	// KeptNow are further such annotations, which change; nil: there are none.
	KeptNow func() map[string]string
	// Own are types of conditions of the node's own, besides a kubelet's: where Facts does
	// not have one, the Node does not.
	Own []v1.NodeConditionType

	// These are for the registration.
	Register    bool              // --register-node; without, someone else makes the Node
	Labels      map[string]string // --node-labels
	Annotations map[string]string
	Taints      []v1.Taint // registerWithTaints
	Cordoned    bool       // !registerSchedulable
	ProviderID  string
	Port        int32 // of the kubelet API
	// CloudAddresses is --cloud-provider=external: addresses that the Node has are the
	// provider's, and are told only to one that has none.
	CloudAddresses bool

	StatusEvery time.Duration // nodeStatusUpdateFrequency
	ReportEvery time.Duration // nodeStatusReportFrequency
	LeaseFor    time.Duration // nodeLeaseDurationSeconds
	MaxImages   int           // nodeStatusMaxImages; negative: all

	Retry <-chan struct{}  // the server may answer again; nil: never said
	Now   func() time.Time // nil: time.Now. The clock that others are told
	Log   *slog.Logger
}

// A Node is safe for concurrent use.
type Node struct {
	Config
	poke chan struct{} // capacity 1
	// These say what Retry says, each to one goroutine; nil, like Retry: never said.
	nodeRetry, leaseRetry chan struct{} // capacity 1

	rewritten <-chan struct{}

	mu    sync.Mutex
	last  *v1.Node // as the API server last showed it; nil: never
	inUse []v1.UniqueVolumeName
	told  chan struct{} // closed when inUse changes; nil: nobody waits
}

// New loads the last Node from the store.
func New(ctx context.Context, c Config) (*Node, error) {
	if c.Client == nil || c.Name == "" || c.Facts == nil || c.Meta == nil || c.StatusEvery <= 0 || c.ReportEvery <= 0 || c.LeaseFor <= 0 {
		return nil, errors.New("node: a part of the configuration is missing")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Changed == nil {
		c.Changed = func(*v1.Node) {}
	}
	if c.History == nil {
		c.History = anyHistory{}
	}
	if c.Claim == nil {
		c.Claim = anyClaim{}
	}
	if c.Touched == nil {
		c.Touched = func() {}
	}
	n := &Node{Config: c, rewritten: c.History.Rewritten(), poke: make(chan struct{}, 1)}
	if c.Retry != nil {
		n.nodeRetry, n.leaseRetry = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	text, found, err := c.Meta.Meta(ctx, metaNode)
	if err != nil {
		return nil, fmt.Errorf("load the last Node: %w", err)
	}
	if found {
		n.last = decode(text, c.Log)
	}
	if n.last != nil {
		c.Changed(n.last)
	}
	return n, nil
}

func decode(text string, log *slog.Logger) *v1.Node {
	data, err := base64.StdEncoding.DecodeString(text)
	node := &v1.Node{}
	if err == nil {
		err = node.Unmarshal(data)
	}
	if err != nil {
		log.Error("the stored Node cannot be read, the API server will send it again", "error", err)
		return nil
	}
	return node
}

// Last gives the Node as it was last seen, with its spec, labels and UID but no status;
// nil when it was never seen. It must not be changed.
func (n *Node) Last() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// Poke says that the facts may have changed.
func (n *Node) Poke() { signal(n.poke) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run keeps Node and Lease until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { n.passRetry(ctx) })
	wg.Go(func() { n.keepLease(ctx) })
	n.keepNode(ctx)
	wg.Wait()
	return nil
}

// passRetry tells both of those who wait for the server.
func (n *Node) passRetry(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.Retry:
			signal(n.nodeRetry)
			signal(n.leaseRetry)
		}
	}
}
