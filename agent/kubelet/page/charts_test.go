package page

import (
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/api"
)

// TestDiskChart checks that the chart of a disk is marked as soon as islet status lists the disk, also if some blocks are reserved for
// root.
func TestDiskChart(t *testing.T) {
	for _, c := range []struct {
		used, free uint64
		bad        bool
	}{{85, 15, false}, {89, 11, false}, {86, 9, true}, {95, 0, true}} {
		v := &view{d: &document{History: []Reading{{Disk: c.used}}, Disk: &api.Disk{Path: "/", Total: 100, Used: c.used, Free: c.free}}}
		v.charts()
		_, text, _ := strings.Cut(string(v.b), "<span>Disk</span>")
		text, _, _ = strings.Cut(text, "</figure>")
		if bad := strings.Contains(text, `<strong class="bad">`); bad != c.bad {
			t.Errorf("%+v: %s", c, text)
		}
		st := &api.Status{Disks: []api.Disk{*v.d.Disk}}
		listed := slices.ContainsFunc(api.FindAttention(st), func(a api.Attention) bool { return strings.Contains(a.Text, "the disk of") })
		if listed != c.bad {
			t.Errorf("%+v: islet status lists the disk: %v", c, listed)
		}
	}
}
