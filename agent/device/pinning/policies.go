package pinning

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/agent/device/cpumanager"
	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/memorymanager"
	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/bootid"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/reserve"
)

// Store stores the assignments as rows. *store.Store implements it.
type Store interface {
	Devices(context.Context) ([]store.Devices, error)
	TakeDevices(ctx context.Context, uid types.UID, resources ...string) error
	Meta(ctx context.Context, key string) (value string, known bool, err error)
	SetMeta(ctx context.Context, key, value string) error
}

// Runtime lists and updates containers.
type Runtime interface {
	ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error)
	UpdateContainerResources(context.Context, *api.UpdateContainerResourcesRequest) (*api.UpdateContainerResourcesResponse, error)
}

// Config is the input of Open.
type Config struct {
	Config    *config.Config
	Share     reserve.Share // capacity and reservations of the node
	Host      fs.FS         // the machine's root directory
	Store     Store
	Devices   *devicemanager.Manager
	OnRelease func() // called after CPUs or memory were released; may be nil
	Log       *slog.Logger
}

// metaPolicy is the key under which the names of the policies are stored.
const metaPolicy = "pinning"

// The names of the resources in the rows. No device can have these names.
const (
	rowCPU    = "cpu"
	rowMemory = "memory"
)

// policies describes the policies that were in effect when the rows were written.
type policies struct {
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
	Boot   string `json:"boot"` // the machine's boot ID; after a reboot no earlier container runs
}

// A Manager assigns exclusive CPUs and memory. It is safe for concurrent use.
type Manager struct {
	c       Config
	policy  *topology.Policy
	byPod   bool                  // the topology manager's scope is the pod
	cpus    *cpumanager.Static    // nil if the policy is none
	memory  *memorymanager.Static // nil if the policy is None
	metrics *metrics

	runtime      Runtime
	changeSignal chan struct{} // capacity 1; receives a value when the shared CPUs may have changed

	planning sync.Mutex // locked while resources are reserved, but not during calls to a device plugin or the store; locked before mu

	mu         sync.Mutex
	locks      map[types.UID]*podLock
	cpuSets    cpumanager.Assignments // the stored assignments
	nodes      *memorymanager.Assignments
	reserved   reservations
	configured map[containerKey]configuration // the last configuration of containers that may not run yet
	applied    map[string]cpuset.CPUSet       // the CPUs of running containers, by container ID
}

// A containerKey identifies a container of a pod.
type containerKey struct {
	uid  types.UID
	name string
}

// A configuration records the CPUs with which a container was configured.
type configuration struct {
	set       cpuset.CPUSet
	createdAt time.Time
}

// Open loads the stored assignments. It returns nil if no policy is configured. It returns an error if assignments of
// running pods do not fit the configuration or the machine.
func Open(ctx context.Context, c Config) (*Manager, error) {
	k := &c.Config.Kubelet
	now := policies{CPU: k.CPUManagerPolicy, Memory: k.MemoryManagerPolicy, Boot: bootid.ReadRoot(c.Host)}
	static, blocks := k.CPUManagerPolicy == "static", k.MemoryManagerPolicy == kubelet.StaticMemoryManagerPolicy
	text, known, err := c.Store.Meta(ctx, metaPolicy)
	if err != nil {
		return nil, err
	}
	if !static && !blocks && k.TopologyManagerPolicy == topology.None && !known {
		return nil, nil
	}
	m := &Manager{
		c: c, byPod: k.TopologyManagerScope == topology.PodScope, metrics: newMetrics(),
		changeSignal: make(chan struct{}, 1), locks: map[types.UID]*podLock{}, reserved: reservations{ended: make(chan struct{})},
		cpuSets: cpumanager.Assignments{}, nodes: &memorymanager.Assignments{},
		configured: map[containerKey]configuration{}, applied: map[string]cpuset.CPUSet{},
	}
	if err := m.buildPolicies(static, blocks); err != nil {
		return nil, err
	}
	rows, err := m.loadRows(ctx)
	if err != nil {
		return nil, err
	}
	var last policies
	if known {
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			return nil, fmt.Errorf("read the policies of the last run: %w", err)
		}
	}
	if err := m.checkState(last, now, known); err != nil {
		if rows == nil || last.Boot != now.Boot {
			if err := m.deleteAssignments(ctx, rows, err); err != nil {
				return nil, err
			}
		} else {
			return nil, fmt.Errorf("%w: running pods depend on the stored assignments (%s): drain this node, or restore the previous "+
				"configuration; after a reboot of the machine islet discards the assignments by itself", err, containerNames(rows))
		}
	}
	if now != last {
		data, err := json.Marshal(now)
		if err != nil {
			return nil, err
		}
		if err := c.Store.SetMeta(ctx, metaPolicy, string(data)); err != nil {
			return nil, err
		}
	}
	if !static && !blocks && m.policy.Name() == topology.None {
		return nil, nil
	}
	m.updateGauges()
	return m, nil
}

// buildPolicies reads the machine's topology and creates the policies.
func (m *Manager) buildPolicies(static, blocks bool) error {
	k := &m.c.Config.Kubelet
	sys, err := fs.Sub(m.c.Host, "sys")
	if err != nil {
		return err
	}
	capacity := m.c.Share.Capacity
	machine, err := topology.Read(sys, uint64(capacity.Memory().Value()), hugePages(capacity))
	if err != nil {
		return fmt.Errorf("read the topology of this machine's CPUs and memory: %w", err)
	}
	o, err := topology.ParseOptions(k.TopologyManagerPolicyOptions)
	if err != nil {
		return fmt.Errorf("topologyManagerPolicyOptions: %w", err)
	}
	if m.policy, err = topology.NewPolicy(k.TopologyManagerPolicy, o, machine); err != nil {
		return fmt.Errorf("topologyManagerPolicy: %w", err)
	}
	reservedTotal := m.c.Share.Reserved()
	if static {
		o, err := cpumanager.ParseOptions(k.CPUManagerPolicyOptions, m.c.Config.GateEnabled("CPUManagerPolicyAlphaOptions"),
			m.c.Config.GateEnabled("CPUManagerPolicyBetaOptions"))
		if err != nil {
			return fmt.Errorf("cpuManagerPolicyOptions: %w", err)
		}
		reserved := cpuset.New()
		if k.ReservedSystemCPUs != "" {
			list, err := reserve.CPUs(k.ReservedSystemCPUs)
			if err != nil {
				return err
			}
			reserved = cpuset.New(list...)
		}
		isolated := cpuset.New()
		if m.c.Config.Edge.RealTime.IsolatesCPUs() {
			if isolated, err = topology.ReadIsolated(sys); err != nil {
				return fmt.Errorf("read the CPUs that the kernel isolates: %w", err)
			}
		}
		milli := reservedTotal.Cpu().MilliValue()
		m.cpus, err = cpumanager.New(cpumanager.Config{Machine: machine, Options: o, Reserved: reserved, Isolated: isolated,
			Count: int((milli + 999) / 1000), Topology: k.TopologyManagerPolicy})
		if err != nil {
			return fmt.Errorf("cpuManagerPolicy: %w", err)
		}
	}
	if blocks {
		by := memorymanager.Reserved{}
		for _, r := range k.ReservedMemory {
			if by[int(r.NumaNode)] == nil {
				by[int(r.NumaNode)] = v1.ResourceList{}
			}
			for name, q := range r.Limits {
				by[int(r.NumaNode)][name] = q
			}
		}
		if m.memory, err = memorymanager.New(machine, by, reservedTotal); err != nil {
			return fmt.Errorf("memoryManagerPolicy: %w", err)
		}
	}
	return nil
}

// hugePages returns the bytes in huge pages, by page size.
func hugePages(l v1.ResourceList) map[uint64]uint64 {
	out := map[uint64]uint64{}
	for name, q := range l {
		if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			if s, err := resource.ParseQuantity(size); err == nil {
				out[uint64(s.Value())] = uint64(q.Value())
			}
		}
	}
	return out
}
