package ctrd

import (
	"maps"
	"slices"
	"testing"

	"github.com/islet-edge/islet/internal/keys"
)

func TestByPod(t *testing.T) {
	b, all := byPod[int]{}, map[string]*int{}
	labels := func(uid string) map[string]string { return map[string]string{keys.PodUID: uid, "app": "x"} }
	put := func(id, uid string) {
		n := 1
		all[id] = &n
		b.put(labels(uid), id, &n)
	}
	put("one", "u")
	put("two", "u")
	put("other", "v")
	put("nobody's", "")
	for _, step := range []struct {
		selector map[string]string
		want     []string
	}{
		{nil, []string{"nobody's", "one", "other", "two"}},
		{map[string]string{"app": "x"}, []string{"nobody's", "one", "other", "two"}},
		{map[string]string{keys.PodUID: ""}, []string{"nobody's", "one", "other", "two"}},
		{map[string]string{keys.PodUID: "u"}, []string{"one", "two"}},
		{map[string]string{keys.PodUID: "w"}, nil},
	} {
		if got := slices.Sorted(maps.Keys(b.findCandidates(all, step.selector))); !slices.Equal(got, step.want) {
			t.Errorf("%v: %v, want %v", step.selector, got, step.want)
		}
	}
	for id, uid := range map[string]string{"one": "u", "two": "u", "other": "v", "nobody's": "", "unknown": "x"} {
		b.drop(labels(uid), id)
	}
	if len(b) != 0 {
		t.Errorf("%v is left", b)
	}
}
