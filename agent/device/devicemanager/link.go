package devicemanager

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// A Link is the connection of a Provider to the Manager.
type Link struct {
	m        *Manager
	resource string
	provider Provider
}

// Connect makes p the provider of a resource. It replaces the current provider, whose list of devices stays valid
// until Link.Devices is called.
func (m *Manager) Connect(ctx context.Context, name string, p Provider) (*Link, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.namesMu.Lock()
	defer m.namesMu.Unlock()
	if err := m.addName(ctx, name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	if r == nil {
		r = &resourceState{}
		m.resources[name] = r
	}
	l := &Link{m, name, p}
	r.link, r.goneSince, r.expired = l, time.Time{}, false
	if r.expiry != nil {
		r.expiry.Stop()
	}
	return l, nil
}

// CheckName returns an error if name is not a valid name of an extended resource.
func CheckName(name string) error {
	native := !strings.Contains(name, "/") || strings.Contains(name, v1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix)
	if native || len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) > 0 {
		return fmt.Errorf("the ResourceName %q is invalid", name) // a kubelet's words
	}
	return nil
}

// Devices replaces the list of the resource's devices. It returns an error, and keeps the old
// list, if the new one exceeds a limit.
func (l *Link) Devices(list []Device) error {
	if len(list) > maxDevices {
		return fmt.Errorf("resource %s has %d devices, but the maximum is %d", l.resource, len(list), maxDevices)
	}
	now, weight := make(map[string]Device, len(list)), 0
	for _, d := range list {
		if d.ID == "" || len(d.ID) > maxID {
			return fmt.Errorf("resource %s has a device with an ID of %d bytes: an ID must have 1 to %d", l.resource, len(d.ID), maxID)
		}
		now[d.ID] = d
		weight += d.approximateSize()
	}
	m := l.m
	m.mu.Lock()
	r := m.resources[l.resource]
	if r.link != l { // another provider has connected
		m.mu.Unlock()
		return nil
	}
	victim, touched, fits := m.makeRoom(r, weight)
	if !fits {
		m.mu.Unlock()
		return fmt.Errorf("the list of devices of resource %s needs %d bytes of memory: all lists together would exceed %d",
			l.resource, weight, maxListed)
	}
	before := r.devices
	r.devices, r.weight = now, weight
	touched = append(touched, m.affectedPods(l.resource, before, now)...)
	m.mu.Unlock()
	m.notifyChanged(!sameHealth(before, now) || victim != nil, touched)
	if victim != nil {
		victim.Yield(fmt.Errorf("the lists of devices of all resources exceed %d bytes of memory, and this list is the largest",
			maxListed))
	}
	return nil
}
