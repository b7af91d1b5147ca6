package garbage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/podspec"
)

// An Image is one that is here, with what is known of its use.
type Image struct {
	ID      string
	Tags    []string
	Digests []string
	Size    uint64 // bytes, as the runtime says; layers that others share count too
	Pinned  bool   // the runtime says that it must stay
	First   time.Time
	Used    time.Time // when it was last known to be in use; zero: never
}

// A Need is an image that something needs.
type Need struct {
	Refs []string // names of the image, and the IDs that they stand for here
	By   string   // who needs it, in words: pod default/web
	Over bool     // it is a pod that has ended for good
}

// Input is all that Decide may look at.
type Input struct {
	Images []Image
	Needs  []Need
	// MinAge is how long an image is left alone since it came. MaxAge is how long it may
	// be unused; 0: for ever.
	MinAge, MaxAge time.Duration
	// All says that the space of every image that nothing needs is wanted, not only of
	// those unused for MaxAge.
	All bool
	// Offline says that images could not be had again.
	Offline bool
	// Since is from when on uses are known: MaxAge counts from then at the earliest.
	Since time.Time
	Now   time.Time
}

// A Cause says why an image goes, in the words of kubelet_image_garbage_collected_total.
type Cause string

// The causes.
const (
	Age   Cause = "age"
	Space Cause = "space"
)

// A Verdict says of an image whether it goes. One of Goes and Stays is set.
type Verdict struct {
	Image
	Goes  Cause
	Stays string // why, in words
}

// Decide judges every image: first those that go, by age and then in the order in which
// space is to be had from them, the longest unused first; then those that stay, by name.
func Decide(in Input) []Verdict {
	needs := index(in.Needs)
	out := make([]Verdict, 0, len(in.Images))
	for _, i := range in.Images {
		v := Verdict{Image: i}
		if v.Stays = in.keep(needs, i); v.Stays == "" {
			v.Goes, v.Stays = in.goes(i)
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b Verdict) int {
		if a.Goes == "" || b.Goes == "" {
			return cmp.Or(cmp.Compare(b.Goes, a.Goes), slices.Compare(a.Tags, b.Tags), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(a.Goes, b.Goes), a.Used.Compare(b.Used), a.First.Compare(b.First), cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// keep is why an image must stay; empty: nothing needs it.
func (in *Input) keep(needs map[string][]*Need, i Image) string {
	if i.Pinned {
		return "the container runtime pins it"
	}
	over := ""
	for name := range i.names() {
		for _, n := range needs[name] {
			if !n.Over {
				return "needed by " + n.By
			}
			over = n.By
		}
	}
	if over != "" && in.Offline {
		return "named by " + over + ", which has ended; there is no control plane that could bring it again"
	}
	return ""
}

// goes is why an image goes that nothing needs, or why not yet.
func (in *Input) goes(i Image) (Cause, string) {
	if unused := in.ago(later(i.Used, i.First, in.Since)); in.MaxAge > 0 && unused > in.MaxAge {
		return Age, ""
	}
	if young := in.ago(i.First); young < in.MinAge {
		return "", "it came less than " + in.MinAge.String() + " ago"
	}
	if in.All {
		return Space, ""
	}
	return "", "nothing needs it, but its space is not wanted"
}

// ago is how long ago something was. A clock that went back makes nothing old.
func (in *Input) ago(at time.Time) time.Duration {
	if at.IsZero() {
		return 1<<63 - 1
	}
	return max(in.Now.Sub(at), 0)
}

func later(at ...time.Time) (last time.Time) {
	for _, t := range at {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// names are all that an image may be asked for by.
func (i Image) names() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		_, hex, _ := strings.Cut(i.ID, ":")
		for _, all := range [][]string{{i.ID, hex}, i.Tags, i.Digests} {
			for _, name := range all {
				if name != "" && !yield(name) {
					return
				}
			}
		}
		// A digest is the name of what it is of, whatever registry it came from: a mirror's, or
		// one that the image was tagged for later.
		for _, d := range i.Digests {
			if _, sum, ok := strings.Cut(d, "@"); ok && !yield(sum) {
				return
			}
		}
	}
}

// index gives the needs by each name that an image may have.
func index(needs []Need) map[string][]*Need {
	out := map[string][]*Need{}
	for i := range needs {
		n := &needs[i]
		add := func(name string) { out[name] = append(out[name], n) }
		for _, ref := range n.Refs {
			if ref == "" {
				continue
			}
			add(ref)
			if full := podspec.FullImage(ref); full != ref {
				add(full)
			}
			if _, sum, ok := strings.Cut(ref, "@"); ok {
				add(sum)
			}
		}
	}
	return out
}
