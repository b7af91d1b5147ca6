package image

import (
	"cmp"
	"sync"

	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/runtime/cri"
)

// activitySet contains the imports and pulls in progress, each with its latest progress.
type activitySet struct {
	mu         sync.Mutex
	inProgress map[*cri.ImportProgress]struct{}
}

// trackActivity registers an import or a pull. The parameter total is the number of bytes to read, or 0 if it is unknown. The returned
// function report stores the progress and passes it to tell, if tell is not nil. Call the returned function end when the import or pull has
// ended.
func (g *activitySet) trackActivity(
	ref string, total int64, tell func(cri.ImportProgress),
) (report func(cri.ImportProgress), end func()) {
	last := &cri.ImportProgress{Ref: ref, Status: "waiting", Total: total}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inProgress == nil {
		g.inProgress = map[*cri.ImportProgress]struct{}{}
	}
	g.inProgress[last] = struct{}{}
	report = func(p cri.ImportProgress) {
		if p.Ref == ref { // a different Ref is one image of an archive
			g.mu.Lock()
			last.Status, last.Current, last.Total = p.Status, p.Current, max(p.Total, total)
			g.mu.Unlock()
		}
		if tell != nil {
			tell(p)
		}
	}
	return report, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.inProgress, last)
	}
}

// ImportsInProgress returns the progress of the running imports and pulls, sorted by reference.
func (s *Service) ImportsInProgress() []cri.ImportProgress {
	s.active.mu.Lock()
	defer s.active.mu.Unlock()
	var out []cri.ImportProgress
	for p := range s.active.inProgress {
		out = append(out, *p)
	}
	sorting.By(out, func(a, b cri.ImportProgress) int { return cmp.Compare(a.Ref, b.Ref) })
	return out
}
