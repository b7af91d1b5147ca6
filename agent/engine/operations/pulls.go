package operations

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/runtime/cri"
)

// pulls contains the most recent pulls of images. The newest is the last.
type pulls struct {
	mu   sync.Mutex
	last []pullRecord
}

type pullRecord struct {
	image      string
	start, end time.Time
}

// maxPulls is the number of pulls that are stored. If the records of a pod's pulls are dropped before the pod runs, the
// duration of these pulls counts as startup time of the pod.
const maxPulls = 64

func (p *pulls) begin(image string) (end func()) {
	from := time.Now()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.last) == maxPulls {
			p.last = slices.Delete(p.last, 0, 1)
		}
		p.last = append(p.last, pullRecord{image, from, time.Now()})
	}
}

// Pulling returns the time from the start of the first to the end of the last pull of a pod's images since the pod
// was created.
func (o *Operations) Pulling(pod *v1.Pod, created time.Time) time.Duration {
	p := &o.pulls
	p.mu.Lock()
	defer p.mu.Unlock()
	var first, last time.Time
	for _, one := range p.last {
		wanted := false
		for kind, c := range podspec.Containers(&pod.Spec) {
			wanted = wanted || kind != podspec.Ephemeral && (c.Image == one.image || c.Image == strings.TrimSuffix(one.image, ":latest"))
		}
		if one.end.Before(created) || !wanted {
			continue
		}
		first, last = cmp.Or(first, laterOf(one.start, created)), laterOf(last, one.end)
	}
	return last.Sub(first)
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sizeLabels are a kubelet's labels for images by size, with the lower bound in bytes.
var sizeLabels = []struct {
	atLeast uint64
	name    string
}{
	{100 << 30, "GT100GB"}, {60 << 30, "60GB-100GB"}, {40 << 30, "40GB-60GB"}, {30 << 30, "30GB-40GB"},
	{20 << 30, "20GB-30GB"}, {10 << 30, "10GB-20GB"}, {5 << 30, "5GB-10GB"},
	{1 << 30, "1GB-5GB"}, {500 << 20, "500MB-1GB"}, {100 << 20, "100MB-500MB"}, {10 << 20, "10MB-100MB"}, {0, "0-10MB"},
}

// observePull observes the duration of a successful pull. The label is the size of the image, which the image service
// reports.
func (o *Operations) observePull(ctx context.Context, images cri.Images, q *api.PullImageRequest, begin time.Time, err error) {
	if err != nil {
		return
	}
	r, err := images.ImageStatus(ctx, &api.ImageStatusRequest{Image: q.GetImage()})
	if err != nil || r.GetImage() == nil {
		return
	}
	for _, s := range sizeLabels {
		if r.Image.Size >= s.atLeast {
			o.pullTime.WithLabelValues(s.name).Observe(time.Since(begin).Seconds())
			return
		}
	}
}
