package ctrd

import (
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestParseSignal(t *testing.T) {
	for s, want := range map[string]unix.Signal{
		"SIGTERM": 15, "term": 15, "9": 9, "SIGRTMIN+3": 37, "SIGRTMINPLUS3": 37, "SIGRTMAXMINUS14": 50, "SIGRTMAX-1": 63, "RTMIN": 34,
		"": 0, "SIGNOPE": 0, "0": 0, "65": 0, "-1": 0, "SIGRTMIN+99": 0, "SIGRTMINx": 0,
	} {
		got, ok := parseSignal(s)
		if ok != (want != 0) || ok && got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, ok, want)
		}
	}
	// All that the CRI knows can be sent.
	for n, name := range api.Signal_name {
		if _, ok := parseSignal(name); !ok && n != 0 {
			t.Errorf("%s is not understood", name)
		}
	}
}

func TestLayerDirs(t *testing.T) {
	for _, c := range []struct {
		mounts []mount.Mount
		want   []string
	}{
		{[]mount.Mount{{Type: "bind", Source: "/a", Options: []string{"ro"}}}, []string{"/a"}},
		{[]mount.Mount{{Type: "overlay", Options: []string{"index=off", "lowerdir=/b:/a"}}}, []string{"/b", "/a"}},
		{[]mount.Mount{{Type: "erofs", Source: "/x"}}, nil},
		{nil, nil},
	} {
		if got := layerDirs(c.mounts); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.mounts, got, c.want)
		}
	}
}
