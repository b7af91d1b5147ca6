package image

import (
	"cmp"
	"slices"
	"sync"

	"github.com/islet-edge/islet/runtime/cri"
)

// going is what imports and pulls that go on said last.
type going struct {
	mu  sync.Mutex
	now map[*cri.ImportProgress]struct{}
}

// follow remembers what is passed to the function it returns, until end. total is
// the size of what is read, where it is known.
func (g *going) follow(ref string, total int64, tell func(cri.ImportProgress)) (said func(cri.ImportProgress), end func()) {
	last := &cri.ImportProgress{Ref: ref, Status: "waiting", Total: total}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.now == nil {
		g.now = map[*cri.ImportProgress]struct{}{}
	}
	g.now[last] = struct{}{}
	said = func(p cri.ImportProgress) {
		if p.Ref == ref { // not one image of an archive
			g.mu.Lock()
			last.Status, last.Current, last.Total = p.Status, p.Current, max(p.Total, total)
			g.mu.Unlock()
		}
		if tell != nil {
			tell(p)
		}
	}
	return said, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.now, last)
	}
}

// Going tells of the imports and pulls that go on, in the order of what they bring.
func (s *Service) Going() []cri.ImportProgress {
	s.going.mu.Lock()
	defer s.going.mu.Unlock()
	var out []cri.ImportProgress
	for p := range s.going.now {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b cri.ImportProgress) int { return cmp.Compare(a.Ref, b.Ref) })
	return out
}
