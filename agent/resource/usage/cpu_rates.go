package usage

import (
	"sync"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// cpuRates computes how many cores containers use, from two successive measurements of the runtime. It keeps the last
// measurement of each existing container.
type cpuRates struct {
	mu   sync.Mutex
	last map[string]measured
}

type measured struct {
	at, used  uint64 // both figures are in nanoseconds
	nanoCores *uint64
}

// minInterval is the minimum time between two measurements from which a rate is computed.
const minInterval = uint64(500 * time.Millisecond)

// nanoCores returns the CPU rate of each container. The rate is nil while it is unknown.
func (r *cpuRates) nanoCores(list []*api.ContainerStats) map[string]*uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, out := make(map[string]measured, len(list)), make(map[string]*uint64, len(list))
	for _, c := range list {
		id, cpu := c.GetAttributes().GetId(), c.GetCpu()
		if cpu.GetUsageCoreNanoSeconds() == nil {
			continue
		}
		n := measured{at: uint64(cpu.Timestamp), used: cpu.UsageCoreNanoSeconds.Value, nanoCores: valueOrNil(cpu.UsageNanoCores)}
		if last, ok := r.last[id]; ok && n.nanoCores == nil {
			switch {
			case n.at < last.at+minInterval:
				n = last
			case n.used >= last.used:
				rate := uint64(float64(n.used-last.used) / float64(n.at-last.at) * 1e9)
				n.nanoCores = &rate
			}
		}
		now[id], out[id] = n, n.nanoCores
	}
	r.last = now
	return out
}

func valueOrNil(v *api.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}
