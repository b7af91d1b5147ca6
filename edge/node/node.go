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

// metaNode is the store's key for the last Node, as base64 of protobuf.
const metaNode = "node"

// Meta stores small values. *store.Store is one.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// A History detects that the API server lost history. *history.History is one.
type History interface {
	Doubt()                                                    // a renewal failed
	Settle(ctx context.Context) error                          // called before each renewal
	Renewed(ctx context.Context, version string, at time.Time) // the server acknowledged a renewal
	Missing(ctx context.Context)                               // the server has no Lease
	Rewritten() <-chan struct{}                                // receives a value when the known Node is outdated
}

// anyHistory is a History that detects nothing.
type anyHistory struct{}

func (anyHistory) Doubt()                                     {}
func (anyHistory) Settle(context.Context) error               { return nil }
func (anyHistory) Renewed(context.Context, string, time.Time) {}
func (anyHistory) Missing(context.Context)                    {}
func (anyHistory) Rewritten() <-chan struct{}                 { return nil }

// A Claim detects another machine with the name of the node. *twin.Twin is one.
type Claim interface {
	// Annotations returns the annotations that the next renewal sets; created: it creates the Lease.
	Annotations(created bool) map[string]any
	// Renewed evaluates the Lease after a renewal, and reports whether to renew again at once.
	Renewed(ctx context.Context, m *metav1.ObjectMeta) (again bool)
	// Conditions returns additional conditions of the Node, with types in Config.Own.
	Conditions() []v1.NodeCondition
}

// anyClaim is a Claim that never detects another machine.
type anyClaim struct{}

func (anyClaim) Annotations(bool) map[string]any                  { return nil }
func (anyClaim) Renewed(context.Context, *metav1.ObjectMeta) bool { return false }
func (anyClaim) Conditions() []v1.NodeCondition                   { return nil }

// Facts are the current state of the machine.
type Facts struct {
	Capacity        v1.ResourceList
	Allocatable     v1.ResourceList
	Addresses       []v1.NodeAddress // InternalIP, Hostname
	Info            v1.NodeSystemInfo
	Images          []v1.ContainerImage // largest first; Config.MaxImages is applied later
	RuntimeHandlers []v1.NodeRuntimeHandler
	Features        *v1.NodeFeatures
	// Declared are the features that this node declares for pods that require them, sorted
	// (KEP-5328).
	Declared []string
	NotReady []string // why pods cannot run here, in a kubelet's words; none: Ready
	// VolumesInUse are the volumes that must not be detached.
	VolumesInUse []v1.UniqueVolumeName
	// Conditions are additional conditions of the Node, with types in Config.Own.
	Conditions []v1.NodeCondition
	// The pressure conditions of a kubelet.
	MemoryPressure, DiskPressure, PIDPressure bool
}

// Config has the dependencies and settings of a Node.
type Config struct {
	Client *kube.Client
	Name   string
	Facts  func(ctx context.Context) (Facts, error) // called often, so it must be fast
	Meta   Meta
	// Changed is called when labels, taints, podCIDRs, the UID or resources that others advertise
	// (its capacity has no others) have changed, and by New for the stored Node. It must not block.
	// nil: not called.
	Changed func(*v1.Node)

	// History is called before and after renewals of the Lease. When it was rewritten, the Node is
	// read again. nil: none.
	History History
	// Claim adds annotations to the Lease. nil: none.
	Claim Claim

	// Touched is called after periodic work: a renewal of the Lease, a report. It must not block.
	// nil: not called.
	Touched func()

	// Kept are annotations that are restored whenever they differ; an empty value removes the
	// annotation.
	Kept map[string]string
	// KeptNow returns further such annotations, which change; nil: none.
	KeptNow func() map[string]string
	// Own are types of conditions that belong to this node, in addition to a kubelet's. A condition
	// of such a type that Facts and Claim do not have is removed from the Node.
	Own []v1.NodeConditionType

	// Settings for the registration:
	Register    bool              // --register-node; false: another program creates the Node
	Labels      map[string]string // --node-labels
	Annotations map[string]string
	Taints      []v1.Taint // registerWithTaints
	Cordoned    bool       // !registerSchedulable
	ProviderID  string
	Port        int32 // of the kubelet API
	// CloudAddresses is --cloud-provider=external: existing addresses of the Node are the
	// provider's, so the node's own are only set if there are none.
	CloudAddresses bool

	StatusEvery time.Duration // nodeStatusUpdateFrequency
	ReportEvery time.Duration // nodeStatusReportFrequency
	LeaseFor    time.Duration // nodeLeaseDurationSeconds
	MaxImages   int           // nodeStatusMaxImages; negative: all

	Retry <-chan struct{}  // the server may answer again; nil: retry by time only
	Now   func() time.Time // wall clock of times in the API; nil: time.Now
	Log   *slog.Logger
}

// A Node maintains the Node object and its Lease. It is safe for concurrent use.
type Node struct {
	Config
	poke chan struct{} // capacity 1
	// Retry is forwarded to one channel for each goroutine; nil if Retry is nil.
	nodeRetry, leaseRetry chan struct{} // capacity 1

	rewritten <-chan struct{}

	mu    sync.Mutex
	last  *v1.Node // the API server's last version; nil: not known
	inUse []v1.UniqueVolumeName
	told  chan struct{} // closed when inUse changes; nil: no caller waits
}

// New loads the last Node from the store and calls Changed with it.
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
		log.Error("the stored Node cannot be decoded, the API server will send it again", "error", err)
		return nil
	}
	return node
}

// Last returns the last known Node, with its spec, labels and UID, but without a status except the
// resources of others; nil if it was never read. It must not be modified.
func (n *Node) Last() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// Poke reports that the facts may have changed.
func (n *Node) Poke() { signal(n.poke) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run maintains Node and Lease until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { n.passRetry(ctx) })
	wg.Go(func() { n.keepLease(ctx) })
	n.keepNode(ctx)
	wg.Wait()
	return nil
}

// passRetry forwards Retry to both goroutines.
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
