package dra

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/retry"
)

// Status returns the health of the devices that a container has through claims (KEP-4680).
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
		c := m.findClaim(pod, all[i].Name)
		if c == nil {
			continue
		}
		st := v1.ResourceStatus{Name: v1.ResourceName("claim:" + used.Name)}
		if used.Request != "" {
			st.Name += v1.ResourceName("/" + used.Request)
		}
		for _, driver := range slices.Sorted(maps.Keys(c.parts)) {
			for _, dev := range c.parts[driver].devices {
				if dev.isForRequest(used.Request) {
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

// healthOf returns the health of a device. The caller holds mu.
func (m *Manager) healthOf(driver string, dev Device) v1.ResourceHealth {
	h := v1.ResourceHealth{
		ResourceID: v1.ResourceID(driver + "/" + dev.Pool + "/" + dev.Name), Health: v1.ResourceHealthStatusUnknown,
	}
	if len(dev.CDI) > 0 {
		h.ResourceID = v1.ResourceID(dev.CDI[0])
	}
	d := m.latestLocked(driver)
	if d == nil {
		return h
	}
	if c, ok := d.health[deviceKey{dev.Pool, dev.Name}]; ok && time.Now().Before(c.validUntil) {
		h.Health = c.health
		if c.message != "" {
			h.Message = new(c.message)
		}
	}
	return h
}

// updateHealth stores the health that a driver reports. If streamEnded is true, it first drops all health that the driver
// reported before.
func (m *Manager) updateHealth(d *driver, list []*health.DeviceHealth, streamEnded bool) {
	m.mu.Lock()
	now := time.Now()
	changed := map[deviceKey]bool{}
	if streamEnded {
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
		more := k.healthBytes(c)
		if found {
			more -= k.healthBytes(before)
		}
		full := func() bool { return !found && devices >= maxHealth || bytes+more > maxHealthBytes }
		if full() && !dropped {
			dropped = true // called at most once for a list, because dropLargest scans the devices of all drivers
			pods = m.dropLargest(d)
			devices, bytes = m.healthSize()
		}
		if full() {
			continue
		}
		bytes += more
		if !found {
			devices++
		}
		if before.health != c.health || before.message != c.message || now.After(before.validUntil) {
			changed[k] = true
		}
		d.health[k] = c
	}
	m.scheduleExpiry(d, now)
	pods = append(pods, m.podsWith(d.name, changed)...)
	m.mu.Unlock()
	for _, uid := range pods {
		m.c.PodChanged(uid)
	}
}

func conditionOf(h *health.DeviceHealth, now time.Time) condition {
	c := condition{health: v1.ResourceHealthStatusUnknown, message: h.GetMessage(), validUntil: now.Add(staleAfter)}
	switch h.GetHealth() {
	case health.HealthStatus_HEALTHY:
		c.health = v1.ResourceHealthStatusHealthy
	case health.HealthStatus_UNHEALTHY:
		c.health = v1.ResourceHealthStatusUnhealthy
	}
	if s := h.GetHealthCheckTimeoutSeconds(); s > 0 {
		c.validUntil = now.Add(min(time.Duration(min(s, int64(maxStale/time.Second)))*time.Second, maxStale))
	}
	if len(c.message) > maxText { // a kubelet also shortens the message
		c.message = strings.ToValidUTF8(c.message[:maxText-3], "") + "..."
	}
	return c
}

// healthBytes returns the number of bytes that a device's health occupies.
func (k deviceKey) healthBytes(c condition) int { return len(k.pool) + len(k.name) + len(c.message) }

// driverHealthSize returns the number of a driver's devices whose health is stored, and the size of this health in
// bytes.
func driverHealthSize(d *driver) (devices, bytes int) {
	for k, c := range d.health {
		bytes += k.healthBytes(c)
	}
	return len(d.health), bytes
}

// dropLargest drops the stored health of the driver whose health occupies the most space. It does nothing if the health
// of the driver in the parameter reporter occupies at least as much space. So no driver can prevent the health of other
// drivers from being stored. It returns the affected pods. The caller holds mu.
func (m *Manager) dropLargest(reporter *driver) []types.UID {
	var largest *driver
	share := func(d *driver) float64 {
		devices, bytes := driverHealthSize(d)
		return max(float64(devices)/maxHealth, float64(bytes)/maxHealthBytes)
	}
	limit := share(reporter)
	for _, all := range m.drivers {
		for _, d := range all {
			if size := share(d); d != reporter && size > limit {
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
	return m.podsWith(largest.name, forgotten)
}

// healthSize returns the number of devices, of all drivers, whose health is stored, and the size of this health in
// bytes. The caller holds mu.
func (m *Manager) healthSize() (devices, bytes int) {
	for _, drivers := range m.drivers {
		for _, d := range drivers {
			n, size := driverHealthSize(d)
			devices, bytes = devices+n, bytes+size
		}
	}
	return devices, bytes
}

// scheduleExpiry starts a timer for the time at which the next stored health expires. The timer then drops the expired
// health and notifies the affected pods. The caller holds mu.
func (m *Manager) scheduleExpiry(d *driver, now time.Time) {
	if d.expiry != nil {
		d.expiry.Stop()
		d.expiry = nil
	}
	var first time.Time
	for _, c := range d.health {
		if c.validUntil.After(now) && (first.IsZero() || c.validUntil.Before(first)) {
			first = c.validUntil
		}
	}
	if first.IsZero() {
		return
	}
	d.expiry = time.AfterFunc(first.Sub(now), func() {
		m.mu.Lock()
		late := map[deviceKey]bool{}
		for k, c := range d.health {
			if !c.validUntil.After(time.Now()) && c.health != "" {
				late[k] = true
				delete(d.health, k)
			}
		}
		m.scheduleExpiry(d, time.Now())
		pods := m.podsWith(d.name, late)
		m.mu.Unlock()
		for _, uid := range pods {
			m.c.PodChanged(uid)
		}
	})
}

// podsWith lists the pods that use at least one of a driver's devices. The caller holds mu.
func (m *Manager) podsWith(driver string, devices map[deviceKey]bool) []types.UID {
	pods := map[types.UID]bool{}
	for _, c := range m.claims {
		p := c.parts[driver]
		if p != nil && slices.ContainsFunc(p.devices, func(d Device) bool { return devices[deviceKey{d.Pool, d.Name}] }) {
			maps.Copy(pods, c.pods)
		}
	}
	return slices.SortedFunc(maps.Keys(pods), cmp.Compare)
}

// watchHealth receives the health of a driver's devices. It ends when the driver is deregistered, or if the driver
// responds that it does not implement the service that it advertised.
func (m *Manager) watchHealth(ctx context.Context, d *driver) {
	again := retry.Backoff{FirstWindow: time.Second, SecondWindow: 10 * time.Second, MaxWindow: time.Minute}
	for {
		began := time.Now()
		err := m.receiveHealth(ctx, d)
		m.updateHealth(d, nil, true)
		if time.Since(began) > again.MaxWindow { // the driver has restarted; this is not one more failure in a row
			again.Reset()
		}
		if ctx.Err() != nil || status.Code(err) == codes.Unimplemented {
			return
		}
		select {
		case <-time.After(again.Next(0)):
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) receiveHealth(ctx context.Context, d *driver) error {
	stream, err := d.watchResources(ctx)
	if err != nil {
		return err
	}
	return plugins.EachList(ctx, stream, func(resp *health.NodeWatchResourcesResponse) error {
		m.updateHealth(d, resp.GetDevices(), false)
		return nil
	})
}

// watchResources calls NodeWatchResources of the driver's health service.
func (d *driver) watchResources(ctx context.Context) (grpc.ServerStreamingClient[health.NodeWatchResourcesResponse], error) {
	s, err := d.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+d.healthService+"/NodeWatchResources")
	if err == nil {
		err = errors.Join(s.SendMsg(&health.NodeWatchResourcesRequest{}), s.CloseSend())
	}
	if err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[health.NodeWatchResourcesRequest, health.NodeWatchResourcesResponse]{ClientStream: s}, nil
}
