package brake

import (
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestJudge(t *testing.T) {
	known := Identity{Cluster: "c1", Node: "n1"}
	other := Identity{Cluster: "c2", Node: "n2"}
	back := Identity{Cluster: "c1", Node: "n1", Epoch: 1}
	again := Identity{Cluster: "c1", Node: "n2"}
	none := Identity{Cluster: "c1"}
	for name, c := range map[string]struct {
		scene Scene
		want  Verdict
	}{
		"a normal mass deletion":              {Scene{Known: known, Now: known, Running: 10, Vanished: 10}, EndAll},
		"nothing vanished in another cluster": {Scene{Known: known, Now: other, Running: 10}, EndAll},
		"all vanished in another cluster":     {Scene{Known: known, Now: other, Running: 10, Vanished: 10}, HoldAll},
		"the only one vanished":               {Scene{Known: known, Now: other, Running: 1, Vanished: 1}, HoldAll},
		"three of six after a restore":        {Scene{Known: known, Now: back, Running: 6, Vanished: 3}, HoldAll},
		"three of seven":                      {Scene{Known: known, Now: back, Running: 7, Vanished: 3}, EndAll},
		"two of three":                        {Scene{Known: known, Now: back, Running: 3, Vanished: 2}, EndAll},
		"the Node was made anew":              {Scene{Known: known, Now: again, Running: 4, Vanished: 4}, HoldAll},
		"the Node is gone":                    {Scene{Known: known, Now: none, Running: 40, Vanished: 1}, HoldAll},
		"nothing was known":                   {Scene{Now: other, Running: 4, Vanished: 4}, EndAll},
		"the cluster may not be asked":        {Scene{Known: known, Now: Identity{Node: "n1"}, Running: 4, Vanished: 4}, EndAll},
		"held: the same again": {Scene{Known: known, Now: other, Running: 4, Vanished: 4, Held: true,
			Seen: &other}, HoldFormer},
		"held: the right one is back": {Scene{Known: known, Now: known, Running: 4, Vanished: 2, Held: true,
			Seen: &other}, EndAll},
		"held: all are listed again": {Scene{Known: known, Now: other, Running: 4, Held: true, Seen: &other}, EndAll},
		"held: a third cluster": {Scene{Known: known, Now: Identity{"c3", "n3", 0}, Running: 4, Vanished: 4,
			Held: true, Seen: &other}, HoldAll},
		"removed one by one: judged together": {Scene{Known: known, Now: again, Running: 4, Vanished: 4, Held: true}, HoldAll},
		"removed one by one: it was only one": {Scene{Known: known, Now: again, Running: 4, Vanished: 1, Held: true}, EndAll},
		"the Node is there again, most vanished": {Scene{Known: known, Now: again, Running: 4, Vanished: 3, Held: true,
			Seen: &none}, HoldAll},
		"the Node is there again, one of four is": {Scene{Known: known, Now: again, Running: 4, Vanished: 1, Held: true,
			Seen: &none}, EndAll},
	} {
		if got, why := Judge(c.scene); got != c.want || (why == "") != (got == EndAll) {
			t.Errorf("%s: %s, %q; want %s", name, got, why, c.want)
		}
	}
}

// FuzzJudge checks the invariants of Judge for every scene.
func FuzzJudge(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, seed*7)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		identity := func() Identity {
			some := func(all ...types.UID) types.UID { return all[r.IntN(len(all))] }
			return Identity{Cluster: some("", "c1", "c2"), Node: some("", "n1", "n2"), Epoch: r.IntN(2)}
		}
		s := Scene{Known: identity(), Now: identity(), Running: r.IntN(12), Held: r.IntN(2) == 0}
		s.Vanished = r.IntN(s.Running + 1)
		seen := identity()
		if s.Held && r.IntN(2) == 0 {
			s.Seen = &seen
		}
		v, why := Judge(s)
		changed := s.Known.describeDifference(s.Now) != ""
		switch {
		case !changed && v != EndAll:
			t.Errorf("%+v: %s although nothing changed", s, v)
		case s.Vanished == 0 && v != EndAll:
			t.Errorf("%+v: %s although nothing vanished", s, v)
		case changed && s.Vanished > 0 && s.Vanished == s.Running && v == EndAll:
			t.Errorf("%+v: all pods end under a new identity", s)
		case v == HoldFormer && !s.Held:
			t.Errorf("%+v: %s although nothing is held", s, v)
		case (v == EndAll) != (why == ""):
			t.Errorf("%+v: %s because %q", s, v, why)
		}
		if merged := s.Known.merge(s.Now); merged.describeDifference(s.Now) != "" && s.Now.Node != "" {
			t.Errorf("%+v: an accepted identity is another: %s", s, merged.describeDifference(s.Now))
		}
	})
}
