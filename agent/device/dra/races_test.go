package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/islet-edge/islet/agent/plugin/plugins"
)

// TestReleasedTwice checks that a second release of a pod has no effect. Another pod keeps the claim, and the claim is not stored again.
func TestReleasedTwice(t *testing.T) {
	w := newWorld(t)
	f := &fake{}
	w.register(f.serve(t, false))
	a, b := pod("a", "gpu"), pod("b", "gpu")
	w.object("gpu", a, b)
	w.prepare(a, "")
	w.prepare(b, "")
	f.recordedCalls()
	c := w.findClaim(a, "gpu")
	release := func(p *v1.Pod) {
		t.Helper()
		tryLockClaims([]*claim{c})
		if err := w.releaseClaims(t.Context(), p.UID, []*claim{c}); err != nil {
			t.Error(err)
		}
	}
	release(a)
	release(a) // this call has waited for the first call
	if got := f.recordedCalls(); got != "" {
		t.Errorf("calls of the driver while another pod uses the claim: %q", got)
	}
	if got := cdi(w, b); len(got) != 1 {
		t.Errorf("the other pod has %q", got)
	}
	release(b)
	release(b)
	if got := f.recordedCalls(); got != "unprepare gpu" {
		t.Errorf("calls of the driver: %q", got)
	}
	if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("stored claims: %v, %v", rows, err)
	}
}

// TestReleaseOfARefusedPod checks that a claim stays prepared for its pod when another pod, which is not allowed to use the claim, is
// released.
func TestReleaseOfARefusedPod(t *testing.T) {
	w := newWorld(t)
	f := &fake{}
	w.register(f.serve(t, false))
	a, b := pod("a", "gpu"), pod("b", "gpu")
	w.object("gpu", a)
	w.prepare(a, "")
	w.prepare(b, "is not allowed to use ResourceClaim gpu")
	f.recordedCalls()
	if err := w.Ended(t.Context(), b); err != nil {
		t.Error(err)
	}
	if err := w.Release(t.Context(), b.UID); err != nil {
		t.Error(err)
	}
	if got := f.recordedCalls(); got != "" {
		t.Errorf("calls of the driver: %q", got)
	}
	if got := cdi(w, a); len(got) != 1 {
		t.Errorf("the other pod has %q", got)
	}
}

// TestPreparedWhileItIsUnprepared checks that a pod waits while a driver unprepares a claim that the pod needs. The driver prepares the
// claim again afterwards.
func TestPreparedWhileItIsUnprepared(t *testing.T) {
	w := newWorld(t)
	f := &fake{hold: make(chan struct{})}
	w.register(f.serve(t, false))
	a, b := pod("a", "gpu"), pod("b", "gpu")
	w.object("gpu", a, b)
	w.prepare(a, "")
	released, prepared := make(chan error, 1), make(chan error, 1)
	go func() { released <- w.Release(t.Context(), a.UID) }()
	<-f.hold // the driver is unpreparing the claim
	go func() { prepared <- w.Prepare(t.Context(), b) }()
	f.hold <- struct{}{}
	if err := <-released; err != nil {
		t.Error(err)
	}
	if err := <-prepared; err != nil {
		t.Error(err)
	}
	if got := f.recordedCalls(); got != "prepare gpu, unprepare gpu, prepare gpu" {
		t.Errorf("calls of the driver: %q", got)
	}
	if got := cdi(w, b); len(got) != 1 {
		t.Errorf("the pod has %q", got)
	}
	if rows, err := w.db.Claims(t.Context()); err != nil || len(rows) != 1 {
		t.Errorf("stored claims: %v, %v", rows, err)
	}
}

// TestRetryKeepsOneOfEachDevice checks that a retry of Prepare after the failure of one driver does not list another driver's devices
// twice. The test repeats this with a restart of the agent between the attempts.
func TestRetryKeepsOneOfEachDevice(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			w := newWorld(t)
			good, bad := &fake{}, &fake{fail: "no"}
			first, second := good.serve(t, false), bad.serve(t, false)
			second.Name = "other.example.com"
			w.register(first)
			w.register(second)
			p := pod("p", "gpu")
			object := w.object("gpu", p)
			results := &object.Status.Allocation.Devices.Results
			*results = append(*results, resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: second.Name, Pool: "p", Device: "d"})
			w.prepare(p, "NodePrepareResources failed for ResourceClaim gpu: no")
			if restart {
				w.start()
				w.register(first)
				w.register(second)
			}
			bad.mu.Lock()
			bad.fail = ""
			bad.mu.Unlock()
			w.prepare(p, "")
			uses, err := w.Uses(p, &p.Spec.Containers[0])
			if err != nil || len(uses) != 4 { // each driver has two devices
				t.Errorf("the container has %+v, %v", uses, err)
			}
			if got := cdi(w, p); !slices.Equal(got, []string{"example.com/gpu=gpu"}) {
				t.Errorf("the container has the CDI devices %q", got)
			}
		})
	}
}

// TestDriverThatHangsUp checks that the agent connects less and less often to a driver that closes each connection at once. After a restart
// of the driver, the agent reconnects.
func TestDriverThatHangsUp(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "dra.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w.register(plugins.Plugin{Name: driverName, Endpoint: l.Addr().String(), Versions: []string{"v1.DRAPlugin"}})
	const calls = 6
	began := time.Now()
	for range calls {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}); err != nil { // SETTINGS of HTTP/2: gRPC takes the driver as ready
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 64)); err != nil { // SETTINGS of HTTP/2: gRPC considers the driver ready
			t.Fatal(err)
		}
		c.Close()
	}
	shortest := time.Duration(0)
	for i := range calls - 1 { // the intervals are those of retry.Within
		shortest += firstReconnect << i / 16
	}
	if took := time.Since(began); took < shortest {
		t.Errorf("%d calls took %s, not at least %s", calls, took, shortest)
	}
	again := time.Tick(5 * time.Millisecond)
	for w.isConnected() { // until gRPC has read the end of the last connection
		<-again
	}
	s := grpc.NewServer()
	defer s.Stop()
	api.RegisterDRAPluginServer(s, &fake{})
	go s.Serve(l)
	for !w.isConnected() {
		<-again
	}
	p := pod("p", "gpu")
	w.object("gpu", p)
	w.prepare(p, "")
}

func (w *world) isConnected() bool {
	d := w.latestDriver(driverName)
	w.Manager.mu.Lock()
	defer w.Manager.mu.Unlock()
	return d.connected
}

// aging is a driver whose health streams end only after hours.
type aging struct {
	health.UnimplementedDRAResourceHealthServer
	watched chan time.Time
}

func (a *aging) NodeWatchResources(_ *health.NodeWatchResourcesRequest,
	s grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) error {
	a.watched <- time.Now()
	select {
	case <-time.After(5 * time.Hour):
	case <-s.Context().Done():
	}
	return errors.New("restarted")
}

// TestHealthAfterRestarts checks that the health of devices is known again soon after each restart of a driver, not only after the first.
func TestHealthAfterRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, a := bufconn.Listen(1<<16), grpc.NewServer(), &aging{watched: make(chan time.Time)}
		defer s.Stop()
		health.RegisterDRAResourceHealthServer(s, a)
		go s.Serve(l)
		conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, stop := context.WithCancel(t.Context())
		ended, m := make(chan struct{}), New(Config{})
		go func() {
			defer close(ended)
			m.watchHealth(ctx, &driver{conn: conn, healthService: healthV1})
		}()
		last := <-a.watched
		for range 5 {
			now := <-a.watched
			if gap := now.Sub(last) - 5*time.Hour; gap > time.Second {
				t.Errorf("the stream is back after %s", gap)
			}
			last = now
		}
		stop()
		<-ended
	})
}
