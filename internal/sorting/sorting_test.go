package sorting_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/islet-edge/islet/internal/sorting"
)

type pair struct{ key, place int }

// TestSort compares the results with those of package slices.
func TestSort(t *testing.T) {
	byKey := func(a, b pair) int { return cmp.Compare(a.key, b.key) }
	byBoth := func(a, b pair) int { return cmp.Or(byKey(a, b), cmp.Compare(a.place, b.place)) }
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		list := make([]pair, n)
		for i := range list {
			list[i] = pair{r.IntN(10), i}
		}
		r.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })

		got, want := slices.Clone(list), slices.Clone(list)
		sorting.By(got, byBoth)
		slices.SortFunc(want, byBoth)
		if !slices.Equal(got, want) {
			t.Fatalf("By(%v) = %v, want %v", list, got, want)
		}
		got, want = slices.Clone(list), slices.Clone(list)
		sorting.StableBy(got, byKey)
		slices.SortStableFunc(want, byKey)
		if !slices.Equal(got, want) {
			t.Fatalf("StableBy(%v) = %v, want %v", list, got, want)
		}
	}
}
