package hardware

import (
	"context"
	"encoding/json"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// metaKey is the key under which the history is stored.
const metaKey = "hardware"

// A holder is a container that has devices of a resource.
type holder struct {
	UID       types.UID
	Container string
	Resource  string
}

// A history stores the devices with which each container was started. A device that was unplugged and plugged in again
// has a new node, and the container must be restarted to get it. The agent may not have been running at that time, so the
// history is stored.
type history struct {
	meta Meta

	mu             sync.Mutex // stays locked while the history is stored
	boot           string
	startedDevices map[holder]map[string]startedDevice // by unit ID
	ports          map[string]string                   // last port of each unit; see finder.groupUnits
}

// A startedDevice is a device with which a container was started.
type startedDevice struct {
	Mark string `json:"mark"`
	Port string `json:"port,omitempty"`
}

// storedHistory is the stored form of a history.
type storedHistory struct {
	Boot string  `json:"boot"`
	Had  []entry `json:"had"`
}

type entry struct {
	UID       types.UID                `json:"uid"`
	Container string                   `json:"container"`
	Resource  string                   `json:"resource"`
	Devices   map[string]startedDevice `json:"devices"`
}

// load reads the stored history. After a reboot it clears the mark of each device, because the containers of the last
// boot no longer run.
func (m *history) load(ctx context.Context, boot string) error {
	m.boot, m.startedDevices, m.ports = boot, map[holder]map[string]startedDevice{}, map[string]string{}
	text, found, err := m.meta.Meta(ctx, metaKey)
	if err != nil || !found {
		return err
	}
	var s storedHistory
	if json.Unmarshal([]byte(text), &s) != nil {
		return nil // the next write replaces the row; containers keep their devices
	}
	for _, e := range s.Had {
		for id, r := range e.Devices {
			if s.Boot != boot || boot == "" {
				r.Mark = ""
				e.Devices[id] = r
			}
			m.ports[portKey(e.Resource, id)] = r.Port
		}
		m.startedDevices[holder{e.UID, e.Container, e.Resource}] = e.Devices
	}
	return nil
}

// lastPorts returns the ports at which the devices of containers were last plugged in.
func (m *history) lastPorts() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.ports)
}

// isOutdated reports whether a container was started with a node other than the present one.
func (m *history) isOutdated(who holder, id, mark string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.startedDevices[who][id].Mark
	return was != "" && was != mark
}

// recordStart stores the devices with which a container is about to start, if they have changed. It drops containers that
// no longer have devices.
func (m *history) recordStart(ctx context.Context, who holder, units []*unit, held map[holder]bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[string]startedDevice{}
	for _, u := range units {
		now[u.id] = startedDevice{u.mark, u.port}
	}
	if maps.Equal(m.startedDevices[who], now) {
		return nil
	}
	had := maps.Clone(m.startedDevices)
	maps.DeleteFunc(had, func(h holder, _ map[string]startedDevice) bool { return !held[h] })
	had[who] = now
	s := storedHistory{Boot: m.boot}
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
	m.startedDevices = had
	clear(m.ports)
	for h, devices := range had {
		for id, r := range devices {
			m.ports[portKey(h.Resource, id)] = r.Port
		}
	}
	return nil
}
