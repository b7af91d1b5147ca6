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
	// readEvery is how often a CSIDriver is read again that has a period: it seldom changes.
	readEvery = 10 * time.Minute
	// leastPeriod is that of the API server.
	leastPeriod = 10 * time.Second
)

// period is how often a driver is asked how many volumes this node takes; 0: once.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/4876-mutable-csinode-allocatable
func period(o *storagev1.CSIDriver) time.Duration {
	if o == nil || o.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return max(time.Duration(*o.Spec.NodeAllocatableUpdatePeriodSeconds)*time.Second, leastPeriod)
}

// limits keeps what the cluster knows of a driver's limit, as its CSIDriver says, until ctx
// ends. Without a period it waits for a pod that finds one.
func (d *Drivers) limits(ctx context.Context, n *driver, told *spec.NodeGetInfoResponse) {
	again := retry.Backoff{First: time.Second, Soon: 30 * time.Second, Most: 5 * time.Minute}
	var every time.Duration
	var read time.Time
	for now := false; ; {
		if time.Since(read) >= readEvery {
			o, err := d.cfg.Driver(ctx, n.Name)
			if err != nil && !apierrors.IsNotFound(err) {
				woken, ended := again.Wait(ctx, 0, n.ask)
				if ended != nil {
					return
				}
				now = now || woken
				continue
			}
			again.Reset()
			every, read = period(o), time.Now()
			n.timed.Store(every > 0)
		}
		if now && every > 0 {
			told = d.renew(ctx, n, told)
		}
		var tick <-chan time.Time // nil: never
		if every > 0 {
			tick = time.After(every)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-n.ask:
			if every == 0 {
				read = time.Time{}
			}
		}
		now = true
	}
}

// renew asks a driver how many volumes this node takes, and tells the cluster if that is
// another number than it knows. It gives what it knows then.
func (d *Drivers) renew(ctx context.Context, n *driver, told *spec.NodeGetInfoResponse) *spec.NodeGetInfoResponse {
	info, err := n.info(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		d.cfg.Log.Warn("a CSI driver does not say how many volumes this node takes", "driver", n.Name, "error", err)
		return told
	case err != nil || info.GetMaxVolumesPerNode() == told.GetMaxVolumesPerNode():
		return told
	}
	d.cfg.Log.Info("a CSI driver has another limit of volumes", "driver", n.Name, "before", told.GetMaxVolumesPerNode(), "now", info.GetMaxVolumesPerNode())
	d.install(n.Name, info)
	return info
}

// askLimit has a driver asked anew how many volumes this node takes.
func (d *Drivers) askLimit(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.drivers[name]; n != nil {
		select {
		case n.ask <- struct{}{}:
		default:
		}
	}
}

// exhausted reports whether a volume could not be attached as there are too many.
func exhausted(a *storagev1.VolumeAttachment) bool {
	e := a.Status.AttachError
	return e != nil && e.ErrorCode != nil && *e.ErrorCode == int32(codes.ResourceExhausted)
}
