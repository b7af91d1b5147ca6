package devicemanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/islet-edge/islet/edge/store"
)

// capacityGrace is the time for which a resource stays in the Node's capacity after its provider has disconnected. A
// kubelet has the same value.
const capacityGrace = 5 * time.Minute

// addName stores the name of a resource that has a provider. The caller holds namesMu.
func (m *Manager) addName(ctx context.Context, name string) error {
	if slices.Contains(m.names, name) {
		return nil
	}
	if len(m.names) >= maxResources {
		return fmt.Errorf("this node already has devices of %d resources, the maximum", maxResources)
	}
	return m.storeNames(ctx, append(slices.Clone(m.names), name))
}

// storeNames stores the names of resources. The caller holds namesMu.
func (m *Manager) storeNames(ctx context.Context, names []string) error {
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if err := m.c.Store.SetMeta(ctx, metaResources, string(text)); err != nil {
		return fmt.Errorf("store the names of resources with devices: %w", err)
	}
	m.names = names
	return nil
}

// expireLater sets the capacity of a resource to zero after capacityGrace, unless a provider has connected by then. A resource has only one
// timer, so that a plugin that connects and disconnects all the time does not fill the memory. The caller holds mu.
func (m *Manager) expireLater(name string) {
	r := m.resources[name]
	if r.expiry != nil {
		r.expiry.Reset(capacityGrace)
		return
	}
	r.expiry = time.AfterFunc(capacityGrace, func() {
		m.mu.Lock()
		expired := r.link == nil && time.Since(r.goneSince) >= capacityGrace // a provider may have come and gone while this call waited
		if expired {
			r.expired, r.devices = true, nil
		}
		m.mu.Unlock()
		if expired {
			m.removeName(name)
			m.c.Changed()
		}
	})
}

// removeName removes a resource without a provider from the stored names.
func (m *Manager) removeName(name string) {
	m.namesMu.Lock()
	defer m.namesMu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	m.mu.Lock()
	back := m.resources[name].link != nil
	m.mu.Unlock()
	if back {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(m.names), func(n string) bool { return n == name })
	if err := m.storeNames(ctx, rest); err != nil && !errors.Is(err, store.ErrClosed) {
		m.c.Log.Warn("cannot remove the stored name of a resource without a provider", "resource", name, "error", err)
	}
}
