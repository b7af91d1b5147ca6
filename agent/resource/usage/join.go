package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/islet-edge/islet/metrics/sample"
)

// A look is one at everything that is under way.
type look struct {
	sample *sample.Sample
	disks  bool
	done   chan struct{} // is closed after what follows is written
	j      *joined
	err    error
	left   bool // who made it did not want to wait any more: another has to
}

// join looks once for all who ask with the same sample. With disks, or when a container has no
// cgroup, the runtime is asked for its figures too. To count files may take long: who needs none
// does not wait for one who does, and nobody waits for longer than he wants to.
func (u *Usage) join(ctx context.Context, disks bool) (*joined, error) {
	if u.c.Sampler == nil {
		return u.gather(ctx, &joined{disks: disks})
	}
	for {
		s, err := u.c.Sampler.Now()
		if err != nil {
			return nil, fmt.Errorf("measure cgroups: %w", err)
		}
		last, l, own := u.begun(s, disks)
		switch {
		case last != nil:
			return last, nil
		case own:
			u.look(ctx, l)
			return l.j, l.err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for figures of containers: %w", ctx.Err())
		}
		if !l.left {
			return l.j, l.err
		}
	}
}

// begun is the look with a sample: one that was kept, or one under way, which may be the
// caller's own to make.
func (u *Usage) begun(s *sample.Sample, disks bool) (last *joined, l *look, own bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if j := u.last; j != nil && j.sample == s && (j.disks || !disks) {
		return j, nil, false
	}
	for _, l := range u.looks {
		if l.sample == s && l.disks == disks {
			return nil, l, false
		}
	}
	l = &look{sample: s, disks: disks, done: make(chan struct{}), left: true}
	u.looks = append(u.looks, l)
	return nil, l, true
}

// look makes a look, also for those who wait for it.
func (u *Usage) look(ctx context.Context, l *look) {
	defer func() { // also after a panic
		u.mu.Lock()
		u.looks = slices.DeleteFunc(u.looks, func(o *look) bool { return o == l })
		if l.j != nil {
			u.keep(l.j)
		}
		u.mu.Unlock()
		close(l.done)
	}()
	l.j, l.err = u.gather(ctx, &joined{disks: l.disks, sample: l.sample})
	l.left = l.err != nil && ctx.Err() != nil
}

// keep keeps a look for as long as its sample may be given again, unless there is one that has
// more. The caller holds mu.
func (u *Usage) keep(j *joined) {
	if last := u.last; last != nil && (last.sample.At.After(j.sample.At) || last.sample == j.sample && last.disks) {
		return
	}
	u.last = j
	if u.forget != nil {
		u.forget.Stop()
	}
	u.forget = time.AfterFunc(maxAge, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.last == j {
			u.last, u.forget = nil, nil
		}
	})
}

// gather looks at everything. Where there is no sample, the runtime tells all.
func (u *Usage) gather(ctx context.Context, j *joined) (*joined, error) {
	n := 0
	if j.sample != nil {
		n = len(j.sample.Groups) / 2 // most are of pods with one container
	}
	j.byUID, j.byID, j.pods = make(map[string]*pod, n), make(map[string]*container, n), make([]*pod, 0, n)
	if err := u.running(ctx, j.add); err != nil {
		return nil, err
	}
	u.known(j)
	if err := u.ask(ctx, j, j.groups()); err != nil {
		return nil, err
	}
	slices.SortFunc(j.pods, func(a, b *pod) int { // of two of a name the newest first
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(b.created, a.created))
	})
	for _, p := range j.pods {
		slices.SortFunc(p.containers, func(a, b *container) int { return cmp.Compare(a.name, b.name) })
	}
	return j, nil
}
