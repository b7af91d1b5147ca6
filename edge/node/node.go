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

// metaNode is the store's key for the last Node. The value is the protobuf encoding in base64.
const metaNode = "node"

// Meta stores small values. *store.Store implements it.
type Meta interface {
	Meta(ctx context.Context, key string) (value string, found bool, err error)
	SetMetaOrRetry(ctx context.Context, key, value string) error
}

// A History detects that the API server has lost changes. *history.History implements it.
type History interface {
	SuspectServer()                             // call it after a failed renewal
	VerifyServer(ctx context.Context) error     // call it before each renewal
	RecordRenewal(version string, at time.Time) // call it after the server has acknowledged a renewal; it must not block
	RecordMissingLease()                        // call it if the server has no Lease; it must not block
	WatchEpoch() <-chan struct{}                // receives a value when the known Node is outdated
}

// noHistory is a History that never detects a loss.
type noHistory struct{}

func (noHistory) SuspectServer()                     {}
func (noHistory) VerifyServer(context.Context) error { return nil }
func (noHistory) RecordRenewal(string, time.Time)    {}
func (noHistory) RecordMissingLease()                {}
func (noHistory) WatchEpoch() <-chan struct{}        { return nil }

// A DuplicateDetector detects another machine that uses the name of this node. *twin.Twin implements it.
type DuplicateDetector interface {
	// Annotations returns the annotations that the next renewal sets. The annotations of a renewal that creates the Lease may differ.
	Annotations(created bool) map[string]any
	// EvaluateLease evaluates the Lease after a renewal. It reports whether to renew the Lease again immediately.
	EvaluateLease(ctx context.Context, m *metav1.ObjectMeta) (again bool)
	// Conditions returns additional conditions of the Node. Their types are in Config.OwnConditions.
	Conditions() []v1.NodeCondition
}

// noDuplicates is a DuplicateDetector that never detects another machine.
type noDuplicates struct{}

func (noDuplicates) Annotations(bool) map[string]any                        { return nil }
func (noDuplicates) EvaluateLease(context.Context, *metav1.ObjectMeta) bool { return false }
func (noDuplicates) Conditions() []v1.NodeCondition                         { return nil }

// A Startup measures how long the registration of a new Node takes. *figures.Startup implements it.
type Startup interface {
	Registering() // called before each attempt
	Found()       // the Node exists, and this node did not create it
	Created()     // this node has created the Node
	Ready()       // the API server has the Node as ready
}

// noStartup is a Startup that measures nothing.
type noStartup struct{}

func (noStartup) Registering() {}
func (noStartup) Found()       {}
func (noStartup) Created()     {}
func (noStartup) Ready()       {}

// Facts is the current state of the machine.
type Facts struct {
	Capacity        v1.ResourceList
	Allocatable     v1.ResourceList
	Addresses       []v1.NodeAddress // InternalIP, Hostname
	Info            v1.NodeSystemInfo
	Images          []v1.ContainerImage // largest first; Node applies Config.MaxImages
	RuntimeHandlers []v1.NodeRuntimeHandler
	Features        *v1.NodeFeatures
	// Declared is the sorted list of the features that this node declares (KEP-5328).
	Declared []string
	NotReady []string // a kubelet's reasons why pods cannot run here; empty if the node is Ready
	// VolumesInUse is the list of volumes that must not be detached.
	VolumesInUse []v1.UniqueVolumeName
	// Conditions contains additional conditions of the Node. Their types are in Config.OwnConditions.
	Conditions []v1.NodeCondition
	// MemoryPressure, DiskPressure and PIDPressure are the pressure conditions of a kubelet.
	MemoryPressure, DiskPressure, PIDPressure bool
}

// Config contains the dependencies and settings of a Node.
type Config struct {
	Client *kube.Client
	Name   string
	Facts  func(ctx context.Context) (Facts, error) // called often, so it must be fast
	Meta   Meta
	// Changed is called when one of these parts of the Node has changed: the labels, annotations, spec (with taints and podCIDRs), UID, or
	// the resources that other programs advertise. In the Node that Changed receives, the capacity contains only these advertised
	// resources. New calls Changed with the stored Node. Changed must not block, and may be nil.
	Changed func(*v1.Node)

	// History is called before and after renewals of the Lease. After a detected loss, the Node is read again. History may be nil.
	History History
	// LastRenewal is the renewTime of the last renewal that History has stored; zero if there is none. Later renewals have later times,
	// also if the machine has started with an earlier time, because an earlier renewTime would look like lost data.
	LastRenewal time.Time
	// Duplicates adds annotations to the Lease, and checks the Lease after each renewal for another machine. It may be nil.
	Duplicates DuplicateDetector

	// Startup is not called if Register is false. It may be nil.
	Startup Startup

	// OnPeriodicTask is called after periodic work, such as a renewal of the Lease or a report. It must not block. It may be nil.
	OnPeriodicTask func()

	// RemovedLabels contains the keys of labels that another program has set on the Node, and that are removed at each start.
	RemovedLabels []string
	// KeptAnnotations contains annotations that are restored whenever they differ. An empty value removes the annotation.
	KeptAnnotations map[string]string
	// KeptNow returns further annotations to restore, whose values change while the agent runs. KeptNow may be nil.
	KeptNow func() map[string]string
	// OwnConditions contains the types of islet's own conditions. A condition of such a type is removed from the Node if neither Facts nor
	// Duplicates returns it.
	OwnConditions []v1.NodeConditionType

	// Settings for the registration.
	Register   bool              // --register-node; if false, another program creates the Node
	Labels     map[string]string // --node-labels
	Taints     []v1.Taint        // registerWithTaints
	Cordoned   bool              // !registerSchedulable
	ProviderID string
	Port       int32 // port of the kubelet API
	// CloudAddresses is true with --cloud-provider=external. Then the cloud provider manages the addresses of the Node. This node sets its
	// own addresses only if the Node has none.
	CloudAddresses bool

	StatusEvery time.Duration // nodeStatusUpdateFrequency
	ReportEvery time.Duration // nodeStatusReportFrequency
	LeaseFor    time.Duration // nodeLeaseDurationSeconds
	MaxImages   int           // nodeStatusMaxImages; negative means no limit

	Retry kube.LinkSignal  // a value means that the server may answer again; if zero, only a timer triggers retries
	Now   func() time.Time // wall clock of times in the API; the default is time.Now
	Log   *slog.Logger
}

// A Node maintains the Node object and its Lease. It is safe for concurrent use.
type Node struct {
	Config
	reportSignal chan struct{} // capacity 1
	// The values of Retry are forwarded to these two channels, one for each goroutine. Both channels are nil if Retry is nil.
	nodeRetry, leaseRetry chan struct{} // capacity 1

	rewritten    <-chan struct{}
	readRequests chan chan<- struct{} // requests of Refresh

	mu           sync.Mutex
	last         *v1.Node // the API server's last version; nil if unknown
	inUse        []v1.UniqueVolumeName
	inUseChanged chan struct{} // closed when inUse changes; nil if no caller waits
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
		c.History = noHistory{}
	}
	if c.Duplicates == nil {
		c.Duplicates = noDuplicates{}
	}
	if c.Startup == nil || !c.Register {
		c.Startup = noStartup{}
	}
	if c.OnPeriodicTask == nil {
		c.OnPeriodicTask = func() {}
	}
	n := &Node{Config: c, rewritten: c.History.WatchEpoch(), reportSignal: make(chan struct{}, 1), readRequests: make(chan chan<- struct{})}
	if c.Retry.C != nil {
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
		log.Error("the stored Node cannot be decoded: the API server will send it again", "error", err)
		return nil
	}
	return node
}

// LastKnown returns the last known Node, or nil if the Node was never read. The result has the metadata and the spec. Its status has only
// the resources that other programs advertise. Callers must not modify the result.
func (n *Node) LastKnown() *v1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// Poke requests a report of the status, because Facts may return something else than before.
func (n *Node) Poke() { notifyChannel(n.reportSignal) }

// Refresh waits until the Node has been read from the API server again. Then Changed has been called if the Node has changed. Refresh
// returns an error if ctx ends before that, such as without a link.
func (n *Node) Refresh(ctx context.Context) error {
	done := make(chan struct{}, 1)
	select {
	case n.readRequests <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func notifyChannel(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run maintains the Node and the Lease until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { n.passRetry(ctx) })
	wg.Go(func() { n.keepLease(ctx) })
	n.keepNode(ctx)
	wg.Wait()
	return nil
}

// passRetry forwards values of Retry to both goroutines.
func (n *Node) passRetry(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.Retry.C:
			notifyChannel(n.nodeRetry)
			notifyChannel(n.leaseRetry)
		}
	}
}
