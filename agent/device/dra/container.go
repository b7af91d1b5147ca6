package dra

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/islet-edge/islet/internal/podspec"
)

// A Use is a device of a claim that a container has.
type Use struct {
	Claim  string // the object's name, in the pod's namespace
	Driver string
	Device Device
}

// Uses lists what a container has by claims, each device once: by claim, driver and the
// driver's order.
func (m *Manager) Uses(pod *v1.Pod, ctr *v1.Container) ([]Use, error) {
	requests, err := podspec.ClaimRequests(pod, ctr)
	if err != nil || len(requests) == 0 {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Use
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		c := m.find(pod, name)
		if c == nil {
			return nil, fmt.Errorf("ResourceClaim %s is not prepared", name)
		}
		for _, d := range slices.Sorted(maps.Keys(c.parts)) {
			for _, dev := range c.parts[d].devices {
				if slices.ContainsFunc(requests[name], dev.matches) {
					out = append(out, Use{name, d, dev})
				}
			}
		}
	}
	return out, nil
}

// matches reports whether a device is one of a request of its claim. What a subrequest got is
// named as its request.
func (d *Device) matches(request string) bool {
	base, _, _ := strings.Cut(request, "/")
	return request == "" || len(d.Requests) == 0 || slices.Contains(d.Requests, base) || slices.Contains(d.Requests, request)
}

// Container has a container get the CDI devices of its claims.
func (m *Manager) Container(_ context.Context, pod *v1.Pod, ctr *v1.Container, out *cri.ContainerConfig) error {
	uses, err := m.Uses(pod, ctr)
	if err != nil {
		return err
	}
	for _, u := range uses {
		for _, name := range u.Device.CDI {
			if !slices.ContainsFunc(out.CDIDevices, func(d *cri.CDIDevice) bool { return d.Name == name }) {
				out.CDIDevices = append(out.CDIDevices, &cri.CDIDevice{Name: name})
			}
		}
	}
	return nil
}

// Status says how the devices are that a container has by the claims of its pod (KEP-4680).
func (m *Manager) Status(pod *v1.Pod, ctr *v1.Container) (out []v1.ResourceStatus) {
	all, err := podspec.ResourceClaims(pod)
	if err != nil || len(all) == 0 || len(ctr.Resources.Claims) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, used := range ctr.Resources.Claims {
		i := slices.IndexFunc(all, func(c podspec.ResourceClaim) bool { return c.Ref == used.Name })
		if i < 0 {
			continue
		}
		c := m.find(pod, all[i].Name)
		if c == nil {
			continue
		}
		st := v1.ResourceStatus{Name: v1.ResourceName("claim:" + used.Name)}
		if used.Request != "" {
			st.Name += v1.ResourceName("/" + used.Request)
		}
		for _, driver := range slices.Sorted(maps.Keys(c.parts)) {
			for _, dev := range c.parts[driver].devices {
				if dev.matches(used.Request) {
					st.Resources = addHealth(st.Resources, m.healthOf(driver, dev))
				}
			}
		}
		if len(st.Resources) > 0 {
			out = append(out, st)
		}
	}
	return out
}

func addHealth(list []v1.ResourceHealth, h v1.ResourceHealth) []v1.ResourceHealth {
	if slices.ContainsFunc(list, func(o v1.ResourceHealth) bool { return o.ResourceID == h.ResourceID }) {
		return list
	}
	return append(list, h)
}

// healthOf is how a device is. The caller holds mu.
func (m *Manager) healthOf(driver string, dev Device) v1.ResourceHealth {
	h := v1.ResourceHealth{ResourceID: v1.ResourceID(driver + "/" + dev.Pool + "/" + dev.Name), Health: v1.ResourceHealthStatusUnknown}
	if len(dev.CDI) > 0 {
		h.ResourceID = v1.ResourceID(dev.CDI[0])
	}
	d := m.latestLocked(driver)
	if d == nil {
		return h
	}
	if c, ok := d.health[deviceKey{dev.Pool, dev.Name}]; ok && time.Now().Before(c.until) {
		h.Health = c.health
		if c.message != "" {
			h.Message = new(c.message)
		}
	}
	return h
}

// updateHealth takes what a driver says of its devices; gone: it says no more.
func (m *Manager) updateHealth(d *driver, list []*health.DeviceHealth, gone bool) {
	m.mu.Lock()
	now := time.Now()
	changed := map[deviceKey]bool{}
	if gone {
		for k := range d.health {
			changed[k] = true
		}
		clear(d.health)
	}
	devices, bytes := m.healthSize()
	var pods []types.UID
	dropped := false
	for _, h := range list[:min(len(list), maxHealth)] {
		k := deviceKey{h.GetDevice().GetPoolName(), h.GetDevice().GetDeviceName()}
		if len(k.pool) > maxText || len(k.name) > maxText {
			continue
		}
		c := conditionOf(h, now)
		before, found := d.health[k]
		more := k.size(c)
		if found {
			more -= k.size(before)
		}
		full := func() bool { return !found && devices >= maxHealth || bytes+more > maxHealthBytes }
		if full() && !dropped {
			dropped = true // once for a list, as it looks at all
			pods = m.dropLargest(d)
			devices, bytes = m.healthSize()
		}
		if full() {
			continue
		}
		if bytes += more; !found {
			devices++
		}
		if before.health != c.health || before.message != c.message || now.After(before.until) {
			changed[k] = true
		}
		d.health[k] = c
	}
	m.scheduleExpiry(d, now)
	pods = append(pods, m.podsOf(d.name, changed)...)
	m.mu.Unlock()
	for _, uid := range pods {
		m.c.PodChanged(uid)
	}
}

func conditionOf(h *health.DeviceHealth, now time.Time) condition {
	c := condition{health: v1.ResourceHealthStatusUnknown, message: h.GetMessage(), until: now.Add(staleAfter)}
	switch h.GetHealth() {
	case health.HealthStatus_HEALTHY:
		c.health = v1.ResourceHealthStatusHealthy
	case health.HealthStatus_UNHEALTHY:
		c.health = v1.ResourceHealthStatusUnhealthy
	}
	if s := h.GetHealthCheckTimeoutSeconds(); s > 0 {
		c.until = now.Add(min(time.Duration(min(s, int64(maxStale/time.Second)))*time.Second, maxStale))
	}
	if len(c.message) > maxText { // as with a kubelet
		c.message = strings.ToValidUTF8(c.message[:maxText-3], "") + "..."
	}
	return c
}

// size is how many bytes are kept of a device's health.
func (k deviceKey) size(c condition) int { return len(k.pool) + len(k.name) + len(c.message) }

// driverHealthSize is how many bytes and devices of a driver are kept.
func driverHealthSize(d *driver) (devices, bytes int) {
	for k, c := range d.health {
		bytes += k.size(c)
	}
	return len(d.health), bytes
}

// dropLargest forgets the health that the driver with most devices or bytes told, for one that has fewer:
// a driver cannot keep others out. It returns the pods of that driver. The caller holds mu.
func (m *Manager) dropLargest(to *driver) []types.UID {
	var largest *driver
	share := func(d *driver) float64 {
		devices, bytes := driverHealthSize(d)
		return max(float64(devices)/maxHealth, float64(bytes)/maxHealthBytes)
	}
	limit := share(to)
	for _, all := range m.drivers {
		for _, d := range all {
			if size := share(d); d != to && size > limit {
				largest, limit = d, size
			}
		}
	}
	if largest == nil {
		return nil
	}
	forgotten := map[deviceKey]bool{}
	for k := range largest.health {
		forgotten[k] = true
	}
	clear(largest.health)
	return m.podsOf(largest.name, forgotten)
}

// healthSize counts the devices of all drivers whose health is known, and the bytes that are kept of
// them. The caller holds mu.
func (m *Manager) healthSize() (devices, bytes int) {
	for _, drivers := range m.drivers {
		for _, d := range drivers {
			n, size := driverHealthSize(d)
			devices, bytes = devices+n, bytes+size
		}
	}
	return devices, bytes
}

// scheduleExpiry has pods told when what is known of their devices is too old. The caller holds mu.
func (m *Manager) scheduleExpiry(d *driver, now time.Time) {
	if d.expiry != nil {
		d.expiry.Stop()
		d.expiry = nil
	}
	var first time.Time
	for _, c := range d.health {
		if c.until.After(now) && (first.IsZero() || c.until.Before(first)) {
			first = c.until
		}
	}
	if first.IsZero() {
		return
	}
	d.expiry = time.AfterFunc(first.Sub(now), func() {
		m.mu.Lock()
		late := map[deviceKey]bool{}
		for k, c := range d.health {
			if !c.until.After(time.Now()) && c.health != "" {
				late[k] = true
				delete(d.health, k)
			}
		}
		m.scheduleExpiry(d, time.Now())
		pods := m.podsOf(d.name, late)
		m.mu.Unlock()
		for _, uid := range pods {
			m.c.PodChanged(uid)
		}
	})
}

// podsOf lists the pods that have one of a driver's devices. The caller holds mu.
func (m *Manager) podsOf(driver string, which map[deviceKey]bool) []types.UID {
	pods := map[types.UID]bool{}
	for _, c := range m.claims {
		if p := c.parts[driver]; p != nil && slices.ContainsFunc(p.devices, func(d Device) bool { return which[deviceKey{d.Pool, d.Name}] }) {
			maps.Copy(pods, c.pods)
		}
	}
	return slices.SortedFunc(maps.Keys(pods), cmp.Compare)
}
