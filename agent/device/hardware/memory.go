package hardware

import (
	"context"
	"encoding/json"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// metaKey is that of the memory in the store.
const metaKey = "hardware"

// A holder is a container that has devices of a resource.
type holder struct {
	UID       types.UID
	Container string
	Resource  string
}

// A memory knows what each container was started with: a device that was unplugged and
// plugged in again, also while the agent did not run, is another node, which the container
// gets by a restart.
type memory struct {
	meta Meta

	mu   sync.Mutex // held while the store writes
	boot string
	had  map[holder]map[string]remembered // by ID of the unit
	port map[string]string                // see finder.units
}

// A remembered is a device that a container was started with.
type remembered struct {
	Mark string `json:"mark"`
	Port string `json:"port,omitempty"`
}

// stored is what the store has of it.
type stored struct {
	Boot string  `json:"boot"`
	Had  []entry `json:"had"`
}

type entry struct {
	UID       types.UID             `json:"uid"`
	Container string                `json:"container"`
	Resource  string                `json:"resource"`
	Devices   map[string]remembered `json:"devices"`
}

// load reads what the store has. After a reboot marks mean nothing any more: no container
// runs that was started before.
func (m *memory) load(ctx context.Context, boot string) error {
	m.boot, m.had, m.port = boot, map[holder]map[string]remembered{}, map[string]string{}
	text, found, err := m.meta.Meta(ctx, metaKey)
	if err != nil || !found {
		return err
	}
	var s stored
	if json.Unmarshal([]byte(text), &s) != nil {
		return nil // it is written anew; containers keep what they have
	}
	for _, e := range s.Had {
		for id, r := range e.Devices {
			if s.Boot != boot || boot == "" {
				r.Mark = ""
				e.Devices[id] = r
			}
			m.port[portKey(e.Resource, id)] = r.Port
		}
		m.had[holder{e.UID, e.Container, e.Resource}] = e.Devices
	}
	return nil
}

// ports says where the devices were that containers have.
func (m *memory) ports() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.port)
}

// outdated reports whether a container was started with other nodes than there are now.
func (m *memory) outdated(who holder, id, mark string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.had[who][id].Mark
	return was != "" && was != mark
}

// start durably notes what a container is about to be started with, if that is news, and
// forgets those that hold nothing any more.
func (m *memory) start(ctx context.Context, who holder, units []*unit, held map[holder]bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[string]remembered{}
	for _, u := range units {
		now[u.id] = remembered{u.mark, u.port}
	}
	if maps.Equal(m.had[who], now) {
		return nil
	}
	had := maps.Clone(m.had)
	maps.DeleteFunc(had, func(h holder, _ map[string]remembered) bool { return !held[h] })
	had[who] = now
	s := stored{Boot: m.boot}
	for h, devices := range had {
		s.Had = append(s.Had, entry{h.UID, h.Container, h.Resource, devices})
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := m.meta.SetMeta(ctx, metaKey, string(text)); err != nil {
		return err
	}
	m.had = had
	clear(m.port)
	for h, devices := range had {
		for id, r := range devices {
			m.port[portKey(h.Resource, id)] = r.Port
		}
	}
	return nil
}
