package ctrd

import (
	"slices"
	"strings"
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
	// Every signal of the CRI can be sent.
	for n, name := range api.Signal_name {
		if _, ok := parseSignal(strings.TrimPrefix(name, "SIGNAL_")); !ok && n != 0 {
			t.Errorf("%s is not recognized", name)
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

// FuzzUsers checks the user namespace that results from an arbitrary request. A request with invalid ranges is rejected. An accepted range
// of UIDs or GIDs does not contain the host's root. The host's user namespace is used only if the request demands it.
func FuzzUsers(f *testing.F) {
	f.Add(int32(api.NamespaceMode_POD), uint32(0), uint32(65536), uint32(65536), uint32(0), uint32(65536), uint32(65536), true)
	f.Add(int32(api.NamespaceMode_NODE), uint32(0), uint32(0), uint32(0), uint32(0), uint32(0), uint32(0), false)
	f.Add(int32(api.NamespaceMode_POD), uint32(0), uint32(4294901760), uint32(65536), uint32(0), uint32(1), uint32(4294967294), true)
	f.Fuzz(func(t *testing.T, mode int32, c1, h1, n1, c2, h2, n2 uint32, mapped bool) {
		o := &api.NamespaceOption{UsernsOptions: &api.UserNamespace{Mode: api.NamespaceMode(mode)}}
		if mapped {
			o.UsernsOptions.Uids, o.UsernsOptions.Gids = []*api.IDMapping{{ContainerId: c1, HostId: h1, Length: n1}}, []*api.IDMapping{{ContainerId: c2, HostId: h2, Length: n2}}
		}
		u, err := usersOf(o)
		switch {
		case err != nil:
		case u == nil && (mapped || api.NamespaceMode(mode) != api.NamespaceMode_NODE):
			t.Errorf("%v is accepted as the host's user namespace", o)
		case u != nil && (c1 != 0 || c2 != 0 || h1 == 0 || h2 == 0 || n1 == 0 || n2 == 0 || uint64(h1)+uint64(n1) > 1<<32-1 ||
			uint64(h2)+uint64(n2) > 1<<32-1):
			t.Errorf("%v is %+v", o, u)
		}
	})
}
