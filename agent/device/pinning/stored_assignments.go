package pinning

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/agent/device/cpumanager"
	"github.com/islet-edge/islet/agent/device/memorymanager"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/reserve"
	"github.com/islet-edge/islet/internal/sorting"
)

// Ended releases the resources of a pod that has ended.
func (m *Manager) Ended(ctx context.Context, pod *v1.Pod) error { return m.Release(ctx, pod.UID) }

// Release releases the resources of a pod that was deleted. It waits for an admission of this pod, and not for other pods.
func (m *Manager) Release(ctx context.Context, uid types.UID) error {
	if m == nil {
		return nil
	}
	unlock, err := m.lockPod(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	m.mu.Lock()
	has := m.nodes.Clone().Remove(uid) || len(m.cpuSets[uid]) > 0
	m.mu.Unlock()
	if !has {
		return nil
	}
	if err := m.c.Store.TakeDevices(ctx, uid, rowCPU, rowMemory); err != nil {
		return err
	}
	m.mu.Lock()
	m.nodes.Remove(uid)
	delete(m.cpuSets, uid)
	m.mu.Unlock()
	m.notifyChanged()
	if m.c.OnRelease != nil {
		m.c.OnRelease()
	}
	return nil
}

// A memoryRow is the stored form of a container's memory.
type memoryRow struct {
	Seq    int64                 `json:"seq"` // the order of the assignments
	Init   bool                  `json:"init,omitempty"`
	Blocks []memorymanager.Block `json:"blocks"`
}

// loadRows reads the stored assignments and returns their rows.
func (m *Manager) loadRows(ctx context.Context) (rows []store.Devices, err error) {
	all, err := m.c.Store.Devices(ctx)
	if err != nil {
		return nil, err
	}
	type ordered struct {
		memoryRow
		of store.Devices
	}
	var blocks []ordered
	for _, r := range all {
		switch r.Resource {
		case rowCPU:
			set, err := parseCPUs(string(r.Given))
			if err != nil {
				return nil, fmt.Errorf("read the CPUs of container %s of pod %s: %w", r.Container, r.UID, err)
			}
			m.cpuSets.Put(r.UID, r.Container, set)
		case rowMemory:
			o := ordered{of: r}
			if err := json.Unmarshal(r.Given, &o.memoryRow); err != nil {
				return nil, fmt.Errorf("read the memory of container %s of pod %s: %w", r.Container, r.UID, err)
			}
			blocks = append(blocks, o)
		default:
			continue
		}
		rows = append(rows, r)
	}
	sorting.By(blocks, func(a, b ordered) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, b := range blocks {
		m.nodes.Put(b.of.UID, b.of.Container, b.Init, b.Blocks)
	}
	return rows, nil
}

func parseCPUs(text string) (cpuset.CPUSet, error) {
	list, err := reserve.CPUs(text)
	if err != nil {
		return cpuset.New(), err
	}
	return cpuset.New(list...), nil
}

// checkState returns an error if the stored assignments do not fit the configuration or the
// machine.
func (m *Manager) checkState(last, now policies, known bool) error {
	if known && last.CPU != now.CPU {
		return fmt.Errorf("cpuManagerPolicy: configured policy %q differs from state checkpoint policy %q", now.CPU, last.CPU)
	}
	if known && last.Memory != now.Memory {
		return fmt.Errorf("memoryManagerPolicy: configured policy %q differs from state checkpoint policy %q", now.Memory,
			last.Memory)
	}
	var errs []error
	if m.cpus != nil {
		errs = append(errs, m.cpus.Check(m.cpuSets))
	}
	if m.memory != nil {
		errs = append(errs, m.memory.Check(m.nodes))
	}
	return errors.Join(errs...)
}

// deleteAssignments deletes all assignments. It must only be called if no running container depends on them. The pods keep their
// devices.
func (m *Manager) deleteAssignments(ctx context.Context, rows []store.Devices, why error) error {
	for _, r := range rows {
		if err := m.c.Store.TakeDevices(ctx, r.UID, r.Resource); err != nil {
			return err
		}
	}
	if len(rows) > 0 {
		m.c.Log.Warn("discarded the assignments of CPUs and memory: no running container depends on them", "reason", why)
	}
	m.cpuSets, m.nodes = cpumanager.Assignments{}, &memorymanager.Assignments{}
	return nil
}

// maxNames is the maximum number of containers in an error message.
const maxNames = 5

func containerNames(rows []store.Devices) string {
	var out []string
	for _, r := range rows {
		if name := fmt.Sprintf("%s of %s", r.Container, r.UID); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if n := len(out); n > maxNames {
		out = append(out[:maxNames], fmt.Sprintf("and %d more", n-maxNames))
	}
	return strings.Join(out, ", ")
}
