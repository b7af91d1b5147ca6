package garbage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
)

// An Image is a local image, with the times at which it was used.
type Image struct {
	ID      string
	Tags    []string
	Digests []string
	Size    uint64 // bytes as reported by the runtime, which counts shared layers for each image
	Pinned  bool   // the runtime must keep the image
	First   time.Time
	Used    time.Time // last known use; zero means never
}

// A Need is a pod or container, with the names of the images that it needs.
type Need struct {
	Refs  []string // names and IDs of the images
	Name  string   // name of the pod or container for messages, such as pod default/web
	Ended bool     // the pod has ended and will not run again
}

// Input is the input of Decide.
type Input struct {
	Images []Image
	Needs  []Need
	// MinAge is the minimum time for which an image is kept after its pull. MaxAge is the maximum time for which an
	// unused image is kept; 0 means forever.
	MinAge, MaxAge time.Duration
	// All means that all unused images are removed, not only those that have been unused for MaxAge.
	All bool
	// Offline means that a removed image could not be pulled again.
	Offline bool
	// Since is the time from which uses have been recorded. The time before Since never counts as unused time of an
	// image.
	Since time.Time
	Now   time.Time
}

// A Cause is the cause of a removal, as in kubelet_image_garbage_collected_total.
type Cause string

// The causes.
const (
	Age   Cause = "age"
	Space Cause = "space"
)

// A Verdict is the decision about an image: either the cause of its removal, or the reason why it is kept.
type Verdict struct {
	Image
	RemoveCause Cause
	KeepReason  string // reason, for messages
}

// Decide returns a verdict for every image. The images to remove come first: those that are too old, and then those
// that are removed to free space, starting with the longest unused. The other images follow, sorted by name.
func Decide(in Input) []Verdict {
	needs := index(in.Needs)
	out := make([]Verdict, 0, len(in.Images))
	for _, i := range in.Images {
		v := Verdict{Image: i}
		if v.KeepReason = in.findKeepReason(needs, i); v.KeepReason == "" {
			v.RemoveCause, v.KeepReason = in.findCause(i)
		}
		out = append(out, v)
	}
	sorting.StableBy(out, func(a, b Verdict) int {
		if a.RemoveCause == "" || b.RemoveCause == "" {
			return cmp.Or(cmp.Compare(b.RemoveCause, a.RemoveCause), slices.Compare(a.Tags, b.Tags), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(a.RemoveCause, b.RemoveCause), a.Used.Compare(b.Used), a.First.Compare(b.First),
			cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// findKeepReason returns the reason why an image must be kept. It returns "" if the image is unused.
func (in *Input) findKeepReason(needs map[string][]*Need, i Image) string {
	if i.Pinned {
		return "the container runtime pins it; an image of a bundle (islet bundle status) is kept until neither the bundle in use " +
			"nor the one before has it"
	}
	over := ""
	for name := range i.eachName() {
		for _, n := range needs[name] {
			if !n.Ended {
				return "needed by " + n.Name
			}
			over = n.Name
		}
	}
	if over != "" && in.Offline {
		return "named by " + over + ", which has ended; no control plane is reachable that could restore it"
	}
	return ""
}

// findCause returns the cause for which an unused image is removed, or the reason why it is kept.
func (in *Input) findCause(i Image) (Cause, string) {
	if unused := in.timeSince(latestOf(i.Used, i.First, in.Since)); in.MaxAge > 0 && unused > in.MaxAge {
		return Age, ""
	}
	if young := in.timeSince(i.First); young < in.MinAge {
		return "", "it was pulled less than " + in.MinAge.String() + " ago"
	}
	if in.All {
		return Space, ""
	}
	return "", "it is unused, but its space is not needed"
}

// timeSince returns how long ago the given time was. It returns 0 if the clock was set back.
func (in *Input) timeSince(at time.Time) time.Duration {
	if at.IsZero() {
		return 1<<63 - 1
	}
	return max(in.Now.Sub(at), 0)
}

func latestOf(at ...time.Time) (last time.Time) {
	for _, t := range at {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// eachName iterates over the image's tags, digests and ID, in all forms in which a pod may refer to the image.
func (i Image) eachName() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		_, hex, _ := strings.Cut(i.ID, ":")
		for _, all := range [][]string{{i.ID, hex}, i.Tags, i.Digests} {
			for _, name := range all {
				if name != "" && !yield(name) {
					return
				}
			}
		}
		// A digest identifies the content in every registry, for example in a mirror, or in a registry for which the
		// image was tagged later.
		for _, d := range i.Digests {
			if _, sum, ok := strings.Cut(d, "@"); ok && !yield(sum) {
				return
			}
		}
	}
}

// index returns the needs by image name and ID.
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
