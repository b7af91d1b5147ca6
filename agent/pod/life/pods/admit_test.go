package pods

import (
	"fmt"
	"math"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/podtest"
)

// crowd returns a node with admitted pods, whose number is size, and one more pod without an admission decision.
func crowd(t testing.TB, size int) *world {
	w := newWorld(t)
	w.cpu = "1k"
	var pods []*v1.Pod
	for i := range size + 1 {
		pod := podtest.New(fmt.Sprint("p", i), podtest.UID(fmt.Sprint(i)), podtest.Containers())
		for c := range 3 {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: fmt.Sprint("c", c), Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceEphemeralStorage: {}}}})
		}
		pods = append(pods, pod)
	}
	w.setPods(t, desired.File, pods...)
	for i := range size {
		if err := w.Admit(t.Context(), types.UID(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// admitLast admits the last pod of a crowd and then deletes the decision.
func (w *world) admitLast(t testing.TB, size int) {
	uid := types.UID(fmt.Sprint(size))
	if err := w.Admit(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if v := w.verdicts[uid]; v.end != nil {
		t.Fatalf("refused: %+v", v.end)
	}
	delete(w.verdicts, uid)
}

// TestAdmitDoesNotRepeatItself checks that the resources of a pod are computed once, and not again for each later pod.
func TestAdmitDoesNotRepeatItself(t *testing.T) {
	cost := func(size int) float64 {
		w, least := crowd(t, size), math.Inf(1)
		for range 5 { // other goroutines may allocate too, but not in every run
			least = min(least, testing.AllocsPerRun(10, func() { w.admitLast(t, size) }))
		}
		return least
	}
	// The numbers may differ slightly, because a growing slice is allocated again.
	if few, many := cost(4), cost(240); many > few+20 {
		t.Errorf("%v allocations with 4 other pods, %v with 240", few, many)
	}
}

func BenchmarkAdmit(b *testing.B) {
	for _, size := range []int{30, 240} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := crowd(b, size)
			b.ReportAllocs()
			for b.Loop() {
				w.admitLast(b, size)
			}
		})
	}
}

// TestDecisionsAreCounted checks that each admission and each rejection is counted once.
func TestDecisionsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.setPods(t, desired.API, generation(1, "a", "3"), generation(1, "b", "2"))
	for range 2 {
		w.admit(t, "a", "admitted")
		w.admit(t, "b", "OutOfcpu")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := []string{"admitted a", "rejected OutOfcpu"}; !slices.Equal(w.decided, want) {
		t.Errorf("counted %q, not %q", w.decided, want)
	}
}
