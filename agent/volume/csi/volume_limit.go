package csi

import (
	"context"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/internal/retry"
)

const (
	// readEvery is the interval at which the CSIDriver object is read again if it sets an update
	// period.
	readEvery = 10 * time.Minute
	// leastPeriod is the API server's minimum for the update period.
	leastPeriod = 10 * time.Second
)

// limitPeriod returns the interval at which the driver's volume limit is read again. It is 0 if the limit is not read
// again.
//
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/4876-mutable-csinode-allocatable
func limitPeriod(o *storagev1.CSIDriver) time.Duration {
	if o == nil || o.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return max(time.Duration(*o.Spec.NodeAllocatableUpdatePeriodSeconds)*time.Second, leastPeriod)
}

// watchLimit updates the published volume limit of a driver until ctx ends. It reads the limit from the driver at the
// interval that the CSIDriver object sets as the update period. If the object sets no period, watchLimit waits for
// requestLimit and then reads the object again.
func (d *Drivers) watchLimit(ctx context.Context, n *driver, told *spec.NodeGetInfoResponse) {
	again := retry.Backoff{FirstWindow: time.Second, SecondWindow: 30 * time.Second, MaxWindow: 5 * time.Minute}
	var every time.Duration
	var read time.Time
	for now := false; ; {
		if time.Since(read) >= readEvery {
			o, err := d.cfg.Driver(ctx, n.Name)
			if err != nil && !apierrors.IsNotFound(err) {
				woken, ended := again.Wait(ctx, 0, n.limitSignal)
				if ended != nil {
					return
				}
				now = now || woken
				continue
			}
			again.Reset()
			every, read = limitPeriod(o), time.Now()
			n.hasPeriod.Store(every > 0)
		}
		if now && every > 0 {
			told = d.refreshLimit(ctx, n, told)
		}
		var tick <-chan time.Time // nil: never
		if every > 0 {
			tick = time.After(every)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-n.limitSignal:
			if every == 0 {
				read = time.Time{}
			}
		}
		now = true
	}
}

// refreshLimit reads the driver's volume limit and publishes it if it has changed. It returns the published
// information.
func (d *Drivers) refreshLimit(ctx context.Context, n *driver, told *spec.NodeGetInfoResponse) *spec.NodeGetInfoResponse {
	info, err := n.nodeInfo(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		d.cfg.Log.Warn("cannot read the volume limit of a CSI driver", "driver", n.Name, "error", err)
		return told
	case err != nil || info.GetMaxVolumesPerNode() == told.GetMaxVolumesPerNode():
		return told
	}
	d.cfg.Log.Info("the volume limit of a CSI driver changed", "driver", n.Name, "before",
		told.GetMaxVolumesPerNode(), "now", info.GetMaxVolumesPerNode())
	d.publishDriver(n.Name, info)
	return info
}

// requestLimit makes watchLimit read the driver's limit at once.
func (d *Drivers) requestLimit(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.drivers[name]; n != nil {
		select {
		case n.limitSignal <- struct{}{}:
		default:
		}
	}
}

// limitReached reports whether the volume could not be attached because the node has reached the volume limit.
func limitReached(a *storagev1.VolumeAttachment) bool {
	e := a.Status.AttachError
	return e != nil && e.ErrorCode != nil && *e.ErrorCode == int32(codes.ResourceExhausted)
}
