package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podspec"
)

// errGone is why a provider is not asked.
var errGone = errors.New("its provider is gone")

// Admit gives the containers of a pod the devices that they ask for, if there are enough. A
// pod that has them already, since before a restart, keeps them whatever became of their
// provider. A refusal is in a kubelet's words: nothing is given then. An error means that
// nothing was decided.
func (m *Manager) Admit(ctx context.Context, pod *v1.Pod) (reason, refusal string, err error) {
	err = m.allocate(ctx, pod)
	if err == nil || ctx.Err() != nil || Undecided(err) {
		return "", "", err
	}
	return Unexpected, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), nil
}

// Unexpected is a kubelet's reason for a pod that does not get what it asks for.
const Unexpected = "UnexpectedAdmissionError"

// Undecided reports whether an error says nothing of a pod: what was given could not be
// stored.
func Undecided(err error) bool {
	stored := (*unstored)(nil)
	return errors.As(err, &stored)
}

// Wants reports whether a pod asks for devices that it does not have.
func (m *Manager) Wants(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resources) == 0 {
		return false
	}
	all, err := m.wants(pod)
	return err != nil || slices.ContainsFunc(all, func(w want) bool { return w.new })
}

// An unstored is the error of a store that does not take what was given.
type unstored struct{ error }

func (e *unstored) Unwrap() error { return e.error }

// A want is what a container asks for of one resource.
type want struct {
	key
	ctr   *v1.Container
	kind  podspec.Kind
	count int
	new   bool // it has nothing yet
}

// wants lists what a pod asks for of resources that have devices, init containers first.
// What dynamic resources serve (KEP-5004) is left out. The caller holds mu.
func (m *Manager) wants(pod *v1.Pod) (out []want, err error) {
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Ephemeral {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(ctr.Resources.Limits)) {
			q := ctr.Resources.Limits[name]
			w := want{key: key{ctr.Name, string(name)}, ctr: ctr, kind: kind, count: int(q.Value())}
			has := m.given[pod.UID][w.key]
			if w.count <= 0 || has == nil && !m.serves(w.resource) || byClaim(pod, w.key) {
				continue
			}
			if has != nil && len(has.IDs) != w.count {
				return nil, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", pod.UID, w.container, w.resource, len(has.IDs), w.count)
			}
			w.new = has == nil
			out = append(out, w)
		}
	}
	return out, nil
}

// byClaim reports whether a container has a resource by a claim that the scheduler made.
func byClaim(pod *v1.Pod, k key) bool {
	st := pod.Status.ExtendedResourceClaimStatus
	return st != nil && slices.ContainsFunc(st.RequestMappings, func(r v1.ContainerExtendedResourceRequest) bool {
		return r.ContainerName == k.container && r.ResourceName == k.resource
	})
}

// serves reports whether a resource is one with devices. The caller holds mu.
func (m *Manager) serves(name string) bool {
	r := m.resources[name]
	return r != nil && (!r.expired || m.inUse(name))
}

// allocate gives a pod what it does not have yet, all or nothing.
func (m *Manager) allocate(ctx context.Context, pod *v1.Pod) error {
	g, err := m.Give(pod)
	if err != nil || !g.needs() {
		return err
	}
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Ephemeral || err != nil {
			break
		}
		err = g.Container(ctx, ctr, 0)
	}
	return g.End(ctx, err, nil)
}

// A Giving gives one pod its devices, container by container. It has to be ended.
type Giving struct {
	m     *Manager
	pod   *v1.Pod
	all   []want
	short uint64 // what m.short was before
	rows  []store.Devices
	took  []key
	spare spares
}

// Give begins to give a pod its devices.
func (m *Manager) Give(pod *v1.Pod) (*Giving, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := m.wants(pod)
	return &Giving{m: m, pod: pod, all: all, short: m.short, spare: spares{}}, err
}

func (g *Giving) needs() bool {
	return slices.ContainsFunc(g.all, func(w want) bool { return w.new })
}

// Container gives one its devices, of these NUMA nodes as far as they go; zero: of any.
// Containers come in the order in which they start.
func (g *Giving) Container(ctx context.Context, ctr *v1.Container, at topology.Mask) error {
	for _, w := range g.all {
		if w.container != ctr.Name {
			continue
		}
		if w.new {
			got, err := g.m.give(ctx, g.pod, w, g.spare, at)
			if got != nil {
				g.took = append(g.took, w.key)
			}
			if err != nil {
				return err
			}
			data, err := json.Marshal(got.row)
			if err != nil {
				return err
			}
			g.rows = append(g.rows, store.Devices{UID: g.pod.UID, Container: w.container, Resource: w.resource, Count: w.count, Given: data})
		}
		g.spare.pass(w, g.m.ids(g.pod, w.key))
	}
	return nil
}

// End stores what was given, with more that the pod has, or takes it back after an error,
// which it returns.
func (g *Giving) End(ctx context.Context, err error, more []store.Devices) error {
	defer func() { g.m.settle(g.pod, g.took, err == nil, g.short) }()
	if rows := slices.Concat(g.rows, more); err == nil && len(rows) > 0 {
		if failed := g.m.c.Store.GiveDevices(ctx, rows); failed != nil {
			err = &unstored{failed}
		}
	}
	return err
}

// spares are devices of a pod that its later containers may have, by resource: those of
// init containers, which end before the next container starts.
type spares map[string]map[string]bool

// pass notes that a container has devices: what an init container has others may have
// after it; what a sidecar or a container has is its own.
func (s spares) pass(w want, ids []string) {
	if s[w.resource] == nil {
		s[w.resource] = map[string]bool{}
	}
	for _, id := range ids {
		if w.kind == podspec.Init {
			s[w.resource][id] = true
		} else {
			delete(s[w.resource], id)
		}
	}
}

func (m *Manager) ids(pod *v1.Pod, k key) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.given[pod.UID][k]; g != nil {
		return g.IDs
	}
	return nil
}

// settle makes what was given count, or takes it back. Short is what m.short was before it
// was taken: others may have lacked it since.
func (m *Manager) settle(pod *v1.Pod, took []key, good bool, short uint64) {
	m.mu.Lock()
	for _, k := range took {
		if g := m.given[pod.UID][k]; g != nil && good {
			g.pending = false
		} else {
			delete(m.given[pod.UID], k)
		}
	}
	if len(m.given[pod.UID]) == 0 {
		delete(m.given, pod.UID)
	}
	missed := m.short > short+1 // one is its own
	m.mu.Unlock()
	if len(took) > 0 && !good && missed {
		m.c.Changed()
	}
}

// give gives one container devices of one resource. With a grant it has them from now on,
// whatever the error is.
func (m *Manager) give(ctx context.Context, pod *v1.Pod, w want, spare spares, at topology.Mask) (*grant, error) {
	preferred, err := m.preferred(ctx, pod, w, spare[w.resource], at)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	ids, err := m.pick(w, spare[w.resource], preferred, at)
	if err != nil {
		m.mu.Unlock()
		return nil, err
	}
	r := m.resources[w.resource]
	g := &grant{row: row{IDs: ids}, pending: true}
	for _, id := range ids {
		if nodes := r.devices[id].NUMA; len(nodes) > 0 {
			if g.NUMA == nil {
				g.NUMA = map[string][]int64{}
			}
			g.NUMA[id] = nodes
		}
	}
	m.put(pod.UID, w.key, g)
	link := r.link
	m.mu.Unlock()
	if link == nil {
		return g, fmt.Errorf("resource %s: %w", w.resource, errGone)
	}
	a, err := link.provider.Allocate(ctx, Request{pod, w.ctr, ids})
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return g, err
	}
	m.mu.Lock()
	g.Allocation = a
	m.mu.Unlock()
	return g, nil
}

// preferred asks a provider that chooses, if there is a choice.
func (m *Manager) preferred(ctx context.Context, pod *v1.Pod, w want, spare map[string]bool, at topology.Mask) ([]string, error) {
	m.mu.Lock()
	must, free := m.near(w, spare, at)
	link := m.resources[w.resource].link
	m.mu.Unlock()
	must = must[:min(len(must), w.count)]
	p, ok := provider(link).(Preferrer)
	if !ok || len(must) == w.count || len(must)+len(free) <= w.count {
		return nil, nil
	}
	all := slices.Concat(must, free)
	slices.Sort(all)
	return p.Preferred(ctx, Choice{Pod: pod, Container: w.ctr, Available: all, Must: must, Count: w.count})
}

func provider(l *Link) Provider {
	if l == nil {
		return nil
	}
	return l.provider
}

// available lists the healthy devices that a container may have: those that an init
// container of its pod had, and those that nobody has. The caller holds mu.
func (m *Manager) available(name string, spare map[string]bool) (reused, free []string) {
	used := map[string]bool{}
	for _, grants := range m.given {
		for k, g := range grants {
			if k.resource == name {
				for _, id := range g.IDs {
					used[id] = true
				}
			}
		}
	}
	for id, d := range m.resources[name].devices {
		switch {
		case !d.Healthy:
		case spare[id]:
			reused = append(reused, id)
		case !used[id]:
			free = append(free, id)
		}
	}
	slices.Sort(reused)
	slices.Sort(free)
	return reused, free
}

// pick chooses devices: reused ones first, then preferred ones, then any. The caller holds
// mu.
func (m *Manager) pick(w want, spare map[string]bool, preferred []string, at topology.Mask) ([]string, error) {
	healthy := func(d Device) bool { return d.Healthy }
	if !slices.ContainsFunc(slices.Collect(maps.Values(m.resources[w.resource].devices)), healthy) {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", w.resource)
	}
	reused, free := m.available(w.resource, spare)
	if missing := w.count - len(reused); missing > len(free) {
		m.short++
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", w.resource, missing, len(free))
	}
	ids, free := m.near(w, spare, at)
	ids = ids[:min(len(ids), w.count)]
	for _, list := range [][]string{preferred, free} {
		for _, id := range list {
			if slices.Contains(free, id) && len(ids) < w.count && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}
