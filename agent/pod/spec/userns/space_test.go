package userns

import (
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		s    Space
		pods int
		want string
	}{
		"all":               {allOf(unit), 110, ""},
		"all, more each":    {allOf(4 * unit), 110, ""},
		"just enough":       {Space{Range{unit, 110 * unit}, unit}, 110, ""},
		"too few":           {Space{Range{unit, 109 * unit}, unit}, 110, "are not enough to support 110 pods"},
		"not aligned":       {Space{Range{100000, 110 * unit}, unit}, 1, "assigned ID 100000 is not a multiple of 65536"},
		"part of a range":   {Space{Range{unit, unit + 1}, unit}, 1, "length 65537 is not a multiple of 65536"},
		"the host's root":   {Space{Range{0, 110 * unit}, unit}, 1, "must be greater or equal to 65536"},
		"odd length of one": {Space{Range{unit, unit}, 1000}, 1, "length 1000 is not a multiple of 65536"},
		"nothing each":      {Space{Range{unit, unit}, 0}, 1, "length 0 is not a multiple"},
	} {
		if err := c.s.check(c.pods); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFree(t *testing.T) {
	s := Space{Range{2 * unit, 4 * unit}, unit}
	r := func(n ...uint32) (out []Range) {
		for _, i := range n {
			out = append(out, Range{i * unit, unit})
		}
		return out
	}
	for name, c := range map[string]struct {
		s     Space
		taken []Range
		want  uint32 // in units; 0: no range
	}{
		"nothing is taken":          {s, nil, 2},
		"the first":                 {s, r(2), 3},
		"a hole":                    {s, r(5, 2, 4), 3},
		"all":                       {s, r(4, 5, 2, 3), 0},
		"outside":                   {s, r(1, 6, 7), 2},
		"a longer one":              {s, []Range{{unit, 3 * unit}}, 4},
		"one across two":            {s, []Range{{2*unit + 7, unit}}, 4},
		"one of a single ID":        {s, []Range{{2 * unit, 1}, {3*unit - 1, 1}}, 3},
		"everything":                {s, []Range{{1, numIDs - 1}}, 0},
		"longer ranges":             {Space{Range{2 * unit, 4 * unit}, 2 * unit}, r(3), 4},
		"the last has no last ID":   {Space{Range{65534 * unit, 2 * unit}, unit}, r(65534), 0},
		"the last before it":        {Space{Range{65533 * unit, 3 * unit}, unit}, r(65533), 65534},
		"less than one":             {Space{Range{unit, unit - 1}, unit}, nil, 0},
		"all IDs of the host begin": {allOf(unit), nil, 1},
	} {
		before := slices.Clone(c.taken)
		got, ok := c.s.lowestFree(c.taken)
		if ok != (c.want != 0) || ok && (got.First != c.want*unit || got.Count != c.s.PerPod) {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
		if !slices.Equal(before, c.taken) {
			t.Errorf("%s: the used ranges were changed", name)
		}
	}
}

// FuzzFree compares the result with that of a search through all ranges.
func FuzzFree(f *testing.F) {
	f.Add(uint8(2), uint8(4), uint8(1), []byte{2, 0, 1, 4, 3, 2})
	f.Add(uint8(255), uint8(9), uint8(3), []byte{255, 255, 255})
	f.Fuzz(func(t *testing.T, first, count, per uint8, raw []byte) {
		// The space is small, and a unit has 16 to 64 IDs. If the parameter first is odd, the space is near the largest ID.
		s := Space{Range{uint32(first) * 16, uint32(count) * 16}, (uint32(per)%4 + 1) * 16}
		if first%2 == 1 {
			s.First = uint32(numIDs + 1 - 16*uint64(first))
		}
		var taken []Range
		for i := 0; i+2 < len(raw) && i < 96; i += 3 {
			taken = append(taken, Range{s.First + uint32(raw[i])*8 + uint32(raw[i+1])%16 - 64, uint32(raw[i+2])%64 + 1})
		}
		taken = slices.DeleteFunc(taken, func(r Range) bool { return r.validate() != nil })
		got, ok := s.lowestFree(taken)
		for at := uint64(s.First); ; at += uint64(s.PerPod) {
			end := at + uint64(s.PerPod)
			if end > s.end() || end > numIDs {
				if ok {
					t.Fatalf("%v of %v beside %v: no range is free", got, s, taken)
				}
				return
			}
			want := Range{uint32(at), s.PerPod}
			if slices.ContainsFunc(taken, want.overlaps) {
				continue
			}
			if !ok || got != want {
				t.Fatalf("%v, %v of %v beside %v: not %v", got, ok, s, taken, want)
			}
			return
		}
	})
}

func TestSubIDs(t *testing.T) {
	for text, want := range map[string]Range{
		"0: kubelet 65536 7208960\n":               {65536, 7208960},
		"0: kubelet 65536 7208960":                 {65536, 7208960},
		"0: kubelet 65536 65536\n1: kubelet 9 9\n": {},
		"":                            {},
		"0: kubelet 65536":            {},
		"0: kubelet x 65536":          {},
		"0: kubelet -1 65536":         {},
		"0: kubelet 65536 4294967296": {},
		"Error fetching ranges":       {},
		"0: kubelet 65536 65536 " + strings.Repeat("x", 1<<16): {},
	} {
		got, err := parseSubIDs(text)
		if got != want || (err != nil) != (want == Range{}) {
			t.Errorf("%.60q: %v, %v", text, got, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func FuzzLease(f *testing.F) {
	f.Add(encodeLease(Range{65536, 65536}))
	f.Add([]byte(`{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeLease(b)
		if err != nil {
			return
		}
		if again, err := decodeLease(encodeLease(r)); err != nil || again != r || r.validate() != nil {
			t.Errorf("%v, then %v: %v", r, again, err)
		}
	})
}
