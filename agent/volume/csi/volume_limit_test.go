package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/agent/plugin/plugins"
)

// A limitedDriver is a fake driver with its CSIDriver object. It is also the fake cluster to which the driver's limit is reported.
type limitedDriver struct {
	spec.NodeClient
	mu     sync.Mutex
	limit  int64
	asked  int
	object *storagev1.CSIDriver
	down   bool
	told   string
}

func (l *limitedDriver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest, ...grpc.CallOption) (*spec.NodeGetInfoResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	return &spec.NodeGetInfoResponse{NodeId: "id", MaxVolumesPerNode: l.limit}, nil
}

func (l *limitedDriver) read(context.Context, string) (*storagev1.CSIDriver, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.down:
		return nil, errors.New("no link")
	case l.object == nil:
		return nil, apierrors.NewNotFound(storagev1.Resource("csidrivers"), "d")
	}
	return l.object, nil
}

func (l *limitedDriver) Install(_, _ string, limit int64, _ map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told += fmt.Sprint(limit, " ")
}

func (l *limitedDriver) Uninstall(string) {}

// TestLimits checks that a driver's volume limit is read once per period of its CSIDriver object. Only changes are reported to the cluster.
// If the object has no period, the limit is not read. If the object gets a period later, the reads begin when a pod's volume exceeds the
// limit.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limitedDriver{limit: 1, down: true}
		d, err := New(Config{Root: t.TempDir(), Node: "n", Objects: &world{}, Nodes: l, Driver: l.read, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		n := &driver{Plugin: plugins.Plugin{Name: "d"}, node: l, limitSignal: make(chan struct{}, 1)}
		d.drivers["d"] = n
		ended, info := make(chan struct{}), &spec.NodeGetInfoResponse{NodeId: "id", MaxVolumesPerNode: 1}
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer close(ended)
			d.watchLimit(ctx, n, info)
		}()
		wants := func(after time.Duration, limit int64, asked int, told string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.asked != asked || l.told != told {
				t.Errorf("%d calls and reports %q, not %d and %q", l.asked, l.told, asked, told)
			}
			l.limit, l.asked, l.told = limit, 0, ""
		}
		set := func(seconds int64) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.down, l.object = false, &storagev1.CSIDriver{}
			if seconds > 0 {
				l.object.Spec.NodeAllocatableUpdatePeriodSeconds = &seconds
			}
		}
		wants(time.Hour, 2, 0, "") // there is no link
		set(0)
		wants(time.Hour, 2, 0, "")
		d.requestLimit("d") // exceeding a fixed limit has no effect
		wants(time.Hour, 2, 0, "")
		set(60)
		wants(time.Hour, 2, 0, "")
		d.requestLimit("d")
		wants(time.Second, 2, 1, "2 ")
		if !n.hasPeriod.Load() {
			t.Error("the driver has no period")
		}
		wants(time.Minute, 2, 1, "")
		wants(time.Minute, 3, 1, "")
		wants(time.Minute, 4, 1, "3 ")
		d.requestLimit("d")
		wants(time.Second, 4, 1, "4 ")
		set(0) // the limit is read at the end of the current period
		time.Sleep(readEvery)
		wants(time.Minute, 5, 6, "")
		wants(time.Hour, 5, 0, "")
		stop()
		<-ended
	})
}
