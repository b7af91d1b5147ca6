package garbage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func id(n int) string { return fmt.Sprintf("sha256:%016x%048x", n, 0) }

func TestDecide(t *testing.T) {
	sum := "sha256:" + strings.Repeat("cd", 32)
	old := func(n int, tags ...string) Image {
		return Image{ID: id(n), Tags: tags, Size: 1, First: noon.Add(-100 * day), Used: noon.Add(-time.Duration(n) * day)}
	}
	all := Input{All: true, MinAge: 2 * time.Minute, Now: noon, Since: noon.Add(-90 * day)}
	for name, c := range map[string]struct {
		in   Input
		want string // numbers of the IDs with causes, in order; for a kept image, the start of the reason
	}{
		"longest unused first": {changed(all, func(in *Input) { in.Images = []Image{old(1, "a:1"), old(3, "c:1"), old(2, "b:1")} }), "3 space, 2 space, 1 space"},
		"never used before used": {changed(all, func(in *Input) {
			in.Images = []Image{old(5, "a:1"), {ID: id(6), First: noon.Add(-time.Hour)}, {ID: id(7)}}
		}), "7 space, 6 space, 5 space"},
		"space not wanted": {changed(all, func(in *Input) { in.All, in.Images = false, []Image{old(1)} }), "1 it is unused, but"},
		"too young":        {changed(all, func(in *Input) { in.Images = []Image{{ID: id(1), First: noon.Add(-time.Minute)}} }), "1 it was pulled less than 2m0s ago"},
		"pinned":           {changed(all, func(in *Input) { i := old(1); i.Pinned = true; in.Images = []Image{i} }), "1 the container runtime pins it; an image of a bundle (islet bundle status)"},
		"a pod's short name": {changed(all, func(in *Input) {
			in.Images, in.Needs = []Image{old(1, "docker.io/library/web:latest")}, []Need{{Refs: []string{"web"}, Name: "pod a/b"}}
		}), "1 needed by pod a/b"},
		"a pod's tag, of an image that is resolved": {changed(all, func(in *Input) {
			in.Images, in.Needs = []Image{old(1), old(2)}, []Need{{Refs: []string{"whatever", id(1)}, Name: "pod a/b"}}
		}), "2 space, 1 needed by pod a/b"},
		"by digest, with a tag": {changed(all, func(in *Input) {
			i := old(1)
			i.Digests = []string{"r.example/a@" + sum}
			in.Images, in.Needs = []Image{i}, []Need{{Refs: []string{"r.example/a:v1@" + sum}, Name: "pod a/b"}}
		}), "1 needed by pod a/b"},
		"by digest, from a mirror": {changed(all, func(in *Input) {
			i := old(1)
			i.Digests = []string{"mirror.example/a@" + sum}
			in.Images, in.Needs = []Image{i}, []Need{{Refs: []string{"r.example/a@" + sum}, Name: "pod a/b"}}
		}), "1 needed by pod a/b"},
		"a container's ID without its algorithm": {changed(all, func(in *Input) {
			in.Images, in.Needs = []Image{old(1)}, []Need{{Refs: []string{id(1)[7:]}, Name: "container c"}}
		}), "1 needed by container c"},
		"another tag is no need": {changed(all, func(in *Input) {
			in.Images, in.Needs = []Image{old(1, "docker.io/library/web:1")}, []Need{{Refs: []string{"web:2", ""}, Name: "pod a/b"}}
		}), "1 space"},
		"over, with a link": {changed(all, func(in *Input) {
			in.Images, in.Needs = []Image{old(1, "docker.io/library/web:1")}, []Need{{Refs: []string{"web:1"}, Name: "pod a/b", Ended: true}}
		}), "1 space"},
		"over, without a link": {changed(all, func(in *Input) {
			in.Offline, in.Images, in.Needs = true, []Image{old(1, "docker.io/library/web:1")}, []Need{{Refs: []string{"web:1"}, Name: "pod a/b", Ended: true}}
		}), "1 named by pod a/b, which has ended"},
		"over, but another needs it": {changed(all, func(in *Input) {
			in.Images, in.Needs = []Image{old(1, "docker.io/library/web:1")}, []Need{{Refs: []string{"web:1"}, Name: "pod a/b", Ended: true}, {Refs: []string{"web:1"}, Name: "pod c/d"}}
		}), "1 needed by pod c/d"},
		"too long unused": {changed(all, func(in *Input) {
			in.All, in.MaxAge, in.Images = false, 10*day, []Image{old(9, "a:1"), old(11, "b:1"), {ID: id(12), First: noon.Add(-11 * day)}}
		}), "12 age, 11 age, 9 it is unused, but"},
		"uses known for too short a time": {changed(all, func(in *Input) {
			in.All, in.MaxAge, in.Since, in.Images = false, 10*day, noon.Add(-9*day), []Image{old(11, "b:1")}
		}), "11 it is unused, but"},
		"a clock that went back": {changed(all, func(in *Input) {
			in.All, in.MaxAge, in.Now, in.Images = true, 10*day, time.Unix(0, 0), []Image{old(11, "b:1")}
		}), "11 it was pulled less than"},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := Decide(c.in), strings.Split(c.want, ", ")
			if len(got) != len(c.in.Images) {
				t.Fatalf("%d verdicts of %d images", len(got), len(c.in.Images))
			}
			var text []string
			for _, v := range got {
				n := 0
				fmt.Sscanf(v.ID[7:23], "%x", &n)
				text = append(text, fmt.Sprintf("%d %s%s", n, v.RemoveCause, v.KeepReason))
			}
			if joined := strings.Join(text, ", "); !prefixes(text, want) && !strings.HasPrefix(joined, c.want) {
				t.Errorf("%q, not %q", text, c.want)
			}
		})
	}
}

func prefixes(got, want []string) bool {
	return len(got) == len(want) && !slices.ContainsFunc(slices.Collect(indices(got)),
		func(i int) bool { return !strings.HasPrefix(got[i], want[i]) })
}

func indices(s []string) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range s {
			if !yield(i) {
				return
			}
		}
	}
}

func changed(in Input, change func(*Input)) Input {
	change(&in)
	return in
}

// FuzzDecide checks that needed images are kept. These are pinned images and images of pods that may run, and on an offline node also the
// images of all other stored pods. A young image is not removed to free space. A time in the future counts as the present. Each image has
// one decision, and removed images come first.
func FuzzDecide(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint64(1))
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		name := func() string { return fmt.Sprintf("r.example/i%d:%d", r.IntN(6), r.IntN(3)) }
		in := Input{All: r.IntN(2) == 0, Offline: r.IntN(2) == 0, MinAge: time.Duration(r.IntN(3)) * time.Hour, MaxAge: time.Duration(r.IntN(3)) * day, Now: noon}
		at := func() time.Time { return noon.Add(time.Duration(r.IntN(200)-190) * time.Hour) }
		for n := range r.IntN(12) {
			i := Image{ID: id(n), Size: uint64(r.IntN(1000)), Pinned: r.IntN(6) == 0}
			for range r.IntN(3) {
				i.Tags = append(i.Tags, name())
			}
			if r.IntN(3) > 0 {
				i.First = at()
			}
			if r.IntN(3) > 0 {
				i.Used = at()
			}
			in.Images = append(in.Images, i)
		}
		for range r.IntN(8) {
			n := Need{Name: "somebody", Ended: r.IntN(3) == 0}
			for range r.IntN(3) {
				n.Refs = append(n.Refs, []string{name(), id(r.IntN(12)), ""}[r.IntN(3)])
			}
			in.Needs = append(in.Needs, n)
		}
		got := Decide(in)
		seen, stays := map[string]bool{}, false
		for _, v := range got {
			if seen[v.ID] || (v.RemoveCause == "") == (v.KeepReason == "") {
				t.Fatalf("verdict %+v", v)
			}
			seen[v.ID] = true
			if v.RemoveCause == "" {
				stays = true
				continue
			}
			if stays {
				t.Fatal("a removed image follows a kept one")
			}
			if v.Pinned || v.RemoveCause == Space && (!in.All || !v.First.IsZero() && max(noon.Sub(v.First), 0) < in.MinAge) ||
				v.RemoveCause == Age && in.MaxAge == 0 {
				t.Fatalf("%+v is removed", v)
			}
			for _, n := range in.Needs {
				for _, ref := range n.Refs {
					if (ref == v.ID || slices.Contains(v.Tags, ref)) && (!n.Ended || in.Offline) {
						t.Fatalf("%+v is removed, although %+v needs it", v, n)
					}
				}
			}
		}
		if len(seen) != len(in.Images) {
			t.Fatalf("%d verdicts of %d images", len(seen), len(in.Images))
		}
	})
}
