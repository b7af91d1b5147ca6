package outbox

import (
	"fmt"
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkEventsOfMany records the events of a starting pod on a node with the maximum number of stored events.
func BenchmarkEventsOfMany(b *testing.B) {
	e, err := NewEvents(EventsConfig{Node: "n", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	start := func(i int) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i),
			UID: types.UID(fmt.Sprintf("%08d-7c0b-4b6e-9d59-1b6cb02e38ac", i))}}
		for _, reason := range []string{"Pulled", "Created", "Started"} {
			e.Pod(pod, "c", v1.EventTypeNormal, reason, "Container was "+reason)
		}
	}
	i := 0
	for ; i < maxEvents; i++ {
		start(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		start(i)
		i++
		clear(e.budgets)
	}
}
