package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/islet-edge/islet/metrics/sample"
)

// A gathering collects all figures once for several callers.
type gathering struct {
	sample    *sample.Sample
	disks     bool
	done      chan struct{} // closed when the results are set
	j         *joinedFigures
	err       error
	abandoned bool // the context of its caller ended, so another caller must repeat it
}

// joinFigures collects the figures once for all callers that have the same sample. If disks is true or a container has no
// cgroup, it also queries the runtime. Counting files may take long. So a caller that does not set the parameter disks
// does not wait for a caller that sets it. A caller stops waiting when its context ends.
func (u *Usage) joinFigures(ctx context.Context, disks bool) (*joinedFigures, error) {
	if u.c.Sampler == nil {
		return u.gather(ctx, &joinedFigures{disks: disks})
	}
	for {
		s, err := u.c.Sampler.Now()
		if err != nil {
			return nil, fmt.Errorf("measure cgroups: %w", err)
		}
		last, l, own := u.startGathering(s, disks)
		switch {
		case last != nil:
			return last, nil
		case own:
			u.runGathering(ctx, l)
			return l.j, l.err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for figures of containers: %w", ctx.Err())
		}
		if !l.abandoned {
			return l.j, l.err
		}
	}
}

// startGathering returns the result for a sample if it is already known. Otherwise it returns the gathering for the
// sample. If the gathering is new, it also returns true, and the caller must run the gathering.
func (u *Usage) startGathering(s *sample.Sample, disks bool) (last *joinedFigures, l *gathering, own bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if j := u.last; j != nil && j.sample == s && (j.disks || !disks) {
		return j, nil, false
	}
	for _, l := range u.gatherings {
		if l.sample == s && l.disks == disks {
			return nil, l, false
		}
	}
	l = &gathering{sample: s, disks: disks, done: make(chan struct{}), abandoned: true}
	u.gatherings = append(u.gatherings, l)
	return nil, l, true
}

// runGathering collects the figures for the caller, and for all callers that wait for this gathering.
func (u *Usage) runGathering(ctx context.Context, l *gathering) {
	defer func() { // also after a panic
		u.mu.Lock()
		u.gatherings = slices.DeleteFunc(u.gatherings, func(o *gathering) bool { return o == l })
		if l.j != nil {
			u.cacheResult(l.j)
		}
		u.mu.Unlock()
		close(l.done)
	}()
	l.j, l.err = u.gather(ctx, &joinedFigures{disks: l.disks, sample: l.sample})
	l.abandoned = l.err != nil && ctx.Err() != nil
}

// cacheResult caches a result for as long as its sample may be returned again. It does nothing if the cached result is
// newer or more complete. The caller holds mu.
func (u *Usage) cacheResult(j *joinedFigures) {
	if last := u.last; last != nil && (last.sample.At.After(j.sample.At) || last.sample == j.sample && last.disks) {
		return
	}
	u.last = j
	if u.forgetTimer != nil {
		u.forgetTimer.Stop()
	}
	u.forgetTimer = time.AfterFunc(maxAge, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.last == j {
			u.last, u.forgetTimer = nil, nil
		}
	})
}

// gather collects all figures. If there is no sample of the cgroups, all figures come from the runtime.
func (u *Usage) gather(ctx context.Context, j *joinedFigures) (*joinedFigures, error) {
	n := 0
	if j.sample != nil {
		n = len(j.sample.Groups) / 2 // most groups consist of one pod with one container
	}
	j.byUID, j.byID, j.pods = make(map[string]*pod, n), make(map[string]*container, n), make([]*pod, 0, n)
	if err := u.eachRunning(ctx, j.add); err != nil {
		return nil, err
	}
	u.addStatuses(j)
	if err := u.queryRuntime(ctx, j, j.addGroups()); err != nil {
		return nil, err
	}
	slices.SortFunc(j.pods, func(a, b *pod) int { // pods with the same name are sorted by age, the newest first
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(b.created, a.created))
	})
	for _, p := range j.pods {
		slices.SortFunc(p.containers, func(a, b *container) int { return cmp.Compare(a.name, b.name) })
	}
	return j, nil
}
