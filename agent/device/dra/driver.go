package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/internal/grpcwait"
	"github.com/islet-edge/islet/internal/retry"
)

// Limits of calls to a driver and of its messages.
const (
	callTimeout    = 45 * time.Second // as in a kubelet
	maxDevices     = 1 << 10          // devices of a claim
	maxCDI         = 1 << 7           // CDI devices of a device
	maxText        = 1 << 10          // bytes of a name
	maxClaim       = 1 << 18          // bytes of all names of a claim
	maxHealth      = 1 << 14          // number of devices, of all drivers, whose health is stored
	maxHealthBytes = 4 << 20          // bytes of the names and messages of these devices
	staleAfter     = 30 * time.Second // time for which a reported health is valid if the driver sets none
	maxStale       = 24 * time.Hour   // maximum validity that a driver may set

	firstReconnect = 100 * time.Millisecond // longest wait after the first loss of a connection
	lastReconnect  = 30 * time.Second       // longest wait after many losses in a row, if each connection lasted less than this time
)

// The gRPC services that a driver may implement. Both have the same messages.
const (
	serviceV1      = "v1.DRAPlugin"
	serviceV1beta1 = "v1beta1.DRAPlugin"
)

// The gRPC services with which a driver may report the health of its devices. Both have the same messages.
const (
	healthV1       = "v1.DRAResourceHealth"
	healthV1alpha1 = "v1alpha1.DRAResourceHealth"
)

// A driver is a registered instance of a DRA driver.
type driver struct {
	name, endpoint, service string
	healthService           string // empty if the driver does not report health
	conn                    *grpc.ClientConn
	stop                    context.CancelFunc
	counter                 Counter

	// Manager.mu guards these fields.
	connected bool
	health    map[deviceKey]condition
	expiry    *time.Timer // fires when the next health expires; nil if no health expires
}

type deviceKey struct{ pool, name string }

// A condition is the last reported health of a device.
type condition struct {
	health     v1.ResourceHealthStatus
	message    string
	validUntil time.Time
}

// Validate implements plugins.Handler.
func (m *Manager) Validate(p plugins.Plugin) error {
	if problems := validation.IsDNS1123Subdomain(p.Name); len(problems) > 0 {
		return fmt.Errorf("the name of DRA driver %.80q is invalid: %s", p.Name, strings.Join(problems, ", "))
	}
	_, err := serviceName(p)
	return err
}

func serviceName(p plugins.Plugin) (string, error) {
	for _, s := range []string{serviceV1, serviceV1beta1} {
		if slices.Contains(p.Versions, s) {
			return "k8s.io.kubelet.pkg.apis.dra." + s, nil
		}
	}
	return "", fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: "+
		"none of services supported by the plugin (%.200q) are supported by the kubelet (%q)",
		p.Name, p.Endpoint, p.Versions, []string{serviceV1, serviceV1beta1})
}

// healthService returns the newest health service that the plugin advertises. It returns an empty string if there is
// none.
func healthService(p plugins.Plugin) string {
	for _, s := range []string{healthV1, healthV1alpha1} {
		if slices.Contains(p.Versions, s) {
			return s
		}
	}
	return ""
}

// Register implements plugins.Handler. An older instance of the same driver may still be registered.
func (m *Manager) Register(_ context.Context, p plugins.Plugin) error {
	s, err := serviceName(p)
	if err != nil {
		return err
	}
	conn, err := plugins.Dial(p.Endpoint, grpc.WithIdleTimeout(0)) // the state of an open connection shows whether the driver runs
	if err != nil {
		return err
	}
	d := &driver{
		name: p.Name, endpoint: p.Endpoint, service: s, healthService: healthService(p), conn: conn, counter: m.c.Counter,
		health: map[deviceKey]condition{},
	}
	var ctx context.Context
	ctx, d.stop = context.WithCancel(m.ctx)
	m.mu.Lock()
	if m.ctx.Err() != nil || slices.ContainsFunc(m.drivers[p.Name], func(o *driver) bool { return o.endpoint == p.Endpoint }) {
		m.mu.Unlock()
		d.stop()
		return errors.Join(fmt.Errorf("endpoint %s already registered for DRA driver plugin %s", p.Endpoint, p.Name), conn.Close())
	}
	m.drivers[p.Name] = append(m.drivers[p.Name], d)
	waiting := m.waiting[p.Name]
	delete(m.waiting, p.Name)
	m.reportReachable(p.Name)
	m.group.Go(func() { m.watchConnection(ctx, d) })
	if d.healthService != "" {
		m.group.Go(func() { m.watchHealth(ctx, d) })
	}
	m.mu.Unlock()
	m.c.Log.Info("DRA driver registered", "driver", p.Name, "endpoint", p.Endpoint)
	for uid := range waiting {
		m.c.PodChanged(uid)
	}
	return nil
}

// Deregister implements plugins.Handler. It removes the driver instance whose socket was removed.
func (m *Manager) Deregister(p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drivers[p.Name] = slices.DeleteFunc(m.drivers[p.Name], func(d *driver) bool {
		if d.endpoint != p.Endpoint {
			return false
		}
		d.stop() // watchConnection closes the connection
		return true
	})
	m.reportReachable(p.Name)
	if len(m.drivers[p.Name]) == 0 {
		delete(m.drivers, p.Name)
		delete(m.reachable, p.Name)
		m.c.Log.Warn("DRA driver is no longer registered", "driver", p.Name, "endpoint", p.Endpoint)
	}
}

// watchConnection reconnects to a driver whenever the connection is lost, and records whether the driver is connected. It
// closes the connection when the driver is deregistered. gRPC waits only after a connection attempt that has failed. So
// if a driver accepts connections and closes them, watchConnection itself waits before the next attempt.
func (m *Manager) watchConnection(ctx context.Context, d *driver) {
	defer d.conn.Close()
	again := retry.Backoff{FirstWindow: firstReconnect, SecondWindow: lastReconnect, MaxWindow: lastReconnect}
	var opened time.Time // the start of the last connection
	for first := true; ; first = false {
		now := d.conn.GetState()
		m.mu.Lock()
		if is := now == connectivity.Ready; is != d.connected && ctx.Err() == nil {
			d.connected = is
			m.reportReachable(d.name)
		}
		m.mu.Unlock()
		switch {
		case now == connectivity.Ready:
			opened = time.Now()
		case now == connectivity.Idle && !first:
			if !opened.IsZero() && time.Since(opened) > lastReconnect {
				again.Reset()
			}
			opened = time.Time{}
			if _, err := again.Wait(ctx, 0, nil); err != nil {
				return
			}
		}
		if !grpcwait.Change(ctx, d.conn, now) {
			return
		}
	}
}

// reportReachable reports to Slices whether any instance of a driver is connected. It does nothing if this has not
// changed. The caller holds mu.
func (m *Manager) reportReachable(name string) {
	now := slices.ContainsFunc(m.drivers[name], func(d *driver) bool { return d.connected })
	if before, known := m.reachable[name]; m.c.Slices == nil || known && before == now {
		return
	}
	m.reachable[name] = now
	if now {
		m.c.Slices.DriverConnected(name)
		return
	}
	m.c.Slices.DriverGone(name)
}

// latestDriver returns the latest connected instance of a driver. If none is connected, it returns the latest instance. If
// none is registered, it returns nil.
func (m *Manager) latestDriver(name string) *driver {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latestLocked(name)
}

// latestLocked is like latestDriver. The caller holds mu.
func (m *Manager) latestLocked(name string) *driver {
	all := m.drivers[name]
	for _, d := range slices.Backward(all) {
		if d.connected {
			return d
		}
	}
	if len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

func (c *claim) toAPI() *api.Claim {
	return &api.Claim{Namespace: c.namespace, Uid: string(c.uid), Name: c.name}
}

// prepareClaims calls NodePrepareResources and returns the prepared devices by claim.
func (d *driver) prepareClaims(ctx context.Context, claims []*claim) (map[types.UID][]Device, error) {
	q, resp := &api.NodePrepareResourcesRequest{}, &api.NodePrepareResourcesResponse{}
	for _, c := range claims {
		q.Claims = append(q.Claims, c.toAPI())
	}
	if err := d.call(ctx, "NodePrepareResources", q, resp); err != nil {
		return nil, err
	}
	out := map[types.UID][]Device{}
	for _, c := range claims {
		r := resp.Claims[string(c.uid)]
		if r == nil {
			return nil, fmt.Errorf("NodePrepareResources skipped ResourceClaim %s", c.name)
		}
		if r.Error != "" {
			return nil, fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %.1000s", c.name, r.Error)
		}
		devices, err := convertDevices(r.Devices)
		if err != nil {
			return nil, fmt.Errorf("DRA driver %s, ResourceClaim %s: %w", d.name, c.name, err)
		}
		out[c.uid] = devices
	}
	return out, nil
}

func convertDevices(list []*api.Device) (out []Device, err error) {
	if len(list) > maxDevices {
		return nil, fmt.Errorf("it has %d devices, but the maximum is %d", len(list), maxDevices)
	}
	sum := 0
	for _, d := range list {
		now := Device{
			Requests: d.GetRequestNames(), Pool: d.GetPoolName(), Name: d.GetDeviceName(),
			Share: d.GetShareId(), CDI: d.GetCdiDeviceIds(),
		}
		if len(now.CDI) > maxCDI || len(now.Requests) > maxDevices {
			return nil, fmt.Errorf("device %.80q has too many names", now.Name)
		}
		for _, text := range slices.Concat(now.Requests, now.CDI, []string{now.Pool, now.Name, now.Share}) {
			if len(text) > maxText || strings.Contains(text, "\x00") {
				return nil, fmt.Errorf("device %.80q has an invalid name", now.Name)
			}
			if sum += len(text); sum > maxClaim {
				return nil, fmt.Errorf("the names of its devices exceed %d bytes", maxClaim)
			}
		}
		out = append(out, now)
	}
	return out, nil
}

// unprepareClaims calls NodeUnprepareResources once for all claims, and returns the claims that the driver has unprepared.
func (d *driver) unprepareClaims(ctx context.Context, claims []*claim) (done []*claim, err error) {
	q, resp := &api.NodeUnprepareResourcesRequest{}, &api.NodeUnprepareResourcesResponse{}
	for _, c := range claims {
		q.Claims = append(q.Claims, c.toAPI())
	}
	if err := d.call(ctx, "NodeUnprepareResources", q, resp); err != nil {
		return nil, err
	}
	var errs []error
	for _, c := range claims {
		switch r, ok := resp.Claims[string(c.uid)]; {
		case !ok:
			errs = append(errs, fmt.Errorf("NodeUnprepareResources skipped ResourceClaim %s", c.name))
		case r.GetError() != "":
			errs = append(errs, fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %.1000s", c.name, r.Error))
		default:
			done = append(done, c)
		}
	}
	return done, errors.Join(errs...)
}

func (d *driver) call(ctx context.Context, method string, q, resp any) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	full, began := "/"+d.service+"/"+method, time.Now()
	err := d.conn.Invoke(ctx, full, q, resp)
	d.counter.DRACall(d.name, full, status.Code(err).String(), time.Since(began))
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}
