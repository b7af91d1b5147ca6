package operations

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	model "github.com/prometheus/client_model/go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

func TestPullsAreForgotten(t *testing.T) {
	var p pulls
	for range 3 * maxPulls {
		p.begin("image")()
	}
	if len(p.last) != maxPulls {
		t.Errorf("%d pulls are kept", len(p.last))
	}
}

// An images is a fake image service. It pulls one image of the given size. If the size is 0, it returns an error.
type images struct {
	cri.Images
	size uint64
}

func (i images) PullImage(context.Context, *api.PullImageRequest) (*api.PullImageResponse, error) {
	time.Sleep(7 * time.Second) // in the bubble's time
	if i.size == 0 {
		return nil, errors.New("no such image")
	}
	return &api.PullImageResponse{}, nil
}

func (i images) ImageStatus(context.Context, *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	return &api.ImageStatusResponse{Image: &api.Image{Size: i.size}}, nil
}

// TestPullTime checks that the duration of a successful pull is counted with a label for the size of the image, such as "10MB-100MB".
func TestPullTime(t *testing.T) {
	for size, want := range map[uint64]string{0: "", 60e6: "10MB-100MB", 3e6: "0-10MB", 2e9: "1GB-5GB"} {
		synctest.Test(t, func(t *testing.T) {
			o := New()
			_, err := (Pulls{Images: images{size: size}, Operations: o}).PullImage(t.Context(), &api.PullImageRequest{Image: &api.ImageSpec{Image: "x"}})
			if (err == nil) != (want != "") {
				t.Fatal(err)
			}
			all := make(chan prometheus.Metric, 10)
			o.pullTime.Collect(all)
			close(all)
			for s := range all {
				var m model.Metric
				if err := s.Write(&m); err != nil {
					t.Fatal(err)
				}
				h := m.GetHistogram()
				if of := m.Label[0].GetValue(); of != want || h.GetSampleCount() != 1 || h.GetSampleSum() != 7 {
					t.Errorf("%d bytes: %d pulls of %s in %v s, want %q", size, h.GetSampleCount(), of, h.GetSampleSum(), want)
				}
				want = ""
			}
			if want != "" {
				t.Errorf("%d bytes: no observation in %s", size, want)
			}
		})
	}
}
