package podvolumes

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/podtest"
)

// TestSizeInMemory checks that the size of an in-memory volume is the minimum of its sizeLimit, the pod's memory limit and the memory of
// all pods.
func TestSizeInMemory(t *testing.T) {
	for _, tt := range []struct{ sizeLimit, limit, room, want string }{
		{"", "", "", "mode=1777"},
		{"", "", "8Ki", "mode=1777,size=8192"},
		{"", "4Ki", "8Ki", "mode=1777,size=4096"},
		{"1Ki", "4Ki", "8Ki", "mode=1777,size=1024"},
		{"16Ki", "", "8Ki", "mode=1777,size=8192"},
		{"16Ki", "", "", "mode=1777,size=16384"},
		{"0", "", "8Ki", "mode=1777,size=8192"},
		{"16Ki", "", "0", "mode=1777,size=16384"},
	} {
		pod, vol := podtest.New("p", podtest.Limits(podtest.CPUAndMemory("", tt.limit))), &v1.Volume{}
		vol.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
		if tt.sizeLimit != "" {
			q := resource.MustParse(tt.sizeLimit)
			vol.EmptyDir.SizeLimit = &q
		}
		var room func() int64
		if tt.room != "" {
			q := resource.MustParse(tt.room)
			room = q.Value
		}
		if got := (emptyDir{}).dirOptions(pod, vol) + tmpfsSize(pod, vol, room); got != tt.want {
			t.Errorf("sizeLimit %q, limit %q, room %q: %s, want %s", tt.sizeLimit, tt.limit, tt.room, got, tt.want)
		}
	}
}
