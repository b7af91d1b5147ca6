package garbage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Disk is a file system's size in bytes. Free excludes the space reserved for root.
type Disk struct{ Total, Free uint64 }

// collectImages performs one round of Run.
func (g *Garbage) collectImages(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.c.CheckPodsKnown != nil && g.c.CheckPodsKnown() != nil {
		return nil
	}
	images, err := g.images(ctx)
	if err != nil {
		return err
	}
	if err := g.recordUses(ctx, images, g.podNeeds()); err != nil {
		return err
	}
	if g.c.SaveWrites == nil || !g.c.SaveWrites() {
		if err := g.removeOld(ctx, images); err != nil {
			return err
		}
	}
	disk, err := g.c.Disk(ctx)
	if err != nil {
		return fmt.Errorf("measure the disk of images: %w", err)
	}
	if disk.Total == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		g.recordEvent("InvalidDiskCapacity", err.Error())
		return err
	}
	if g.c.High >= 100 || disk.usedPercent() < g.c.High {
		return nil
	}
	return g.makeRoom(ctx, disk)
}

// usedPercent returns the percentage of the disk in use, rounded as in a kubelet.
func (d Disk) usedPercent() int { return 100 - int(min(d.Free, d.Total)*100/max(d.Total, 1)) }

// removeOld removes the given images that have been unused for too long. The times of their use must be set.
func (g *Garbage) removeOld(ctx context.Context, images []Image) error {
	if g.c.MaxAge == 0 {
		return nil
	}
	in := Input{
		Images: images, Needs: g.podNeeds(), MinAge: g.c.MinAge, MaxAge: g.c.MaxAge,
		Since: time.Unix(g.uses.Since, 0), Offline: g.c.Offline(), Now: g.c.Now(),
	}
	if v := Decide(in); len(v) == 0 || v[0].RemoveCause != Age { // the usual case, which needs no further calls to the runtime
		return nil
	}
	_, err := g.remove(ctx, removal{maxAge: g.c.MaxAge, minAge: g.c.MinAge, isEnough: notEnough})
	return err
}

// makeRoom removes images until the disk use is at most the low threshold.
func (g *Garbage) makeRoom(ctx context.Context, disk Disk) error {
	full := disk.usedPercent()
	g.c.Log.Info("the image file system is above its high threshold", "percent", full, "high", g.c.High, "low", g.c.Low)
	before := disk.Free
	enough := func() (bool, error) {
		var err error
		disk, err = g.c.Disk(ctx)
		return disk.usedPercent() <= g.c.Low, err
	}
	if err := g.freeSpace(ctx, removal{allUnused: true, minAge: g.c.MinAge, isEnough: enough}); err != nil {
		return err
	}
	if disk.usedPercent() <= g.c.Low {
		return nil
	}
	freed := max(disk.Free, before) - before
	message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", full, size(disk.Total), freed)
	g.recordEvent("FreeDiskSpaceFailed", message)
	return errors.New(message)
}

// size formats a number of bytes for the event.
func size(bytes uint64) string {
	unit, n := 0, float64(bytes)
	for ; n >= 1024 && unit < 4; unit++ {
		n /= 1024
	}
	return fmt.Sprintf("%.1f %s", n, []string{"B", "KiB", "MiB", "GiB", "TiB"}[unit])
}
