package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPriorityBucket(t *testing.T) {
	for priority, want := range map[int32]string{
		2_000_001_000: "system-critical", 2_000_000_000: "system-critical", 1_999_999_999: "high", 100_000: "high", 99_999: "medium", 1: "medium",
		0: "normal", -1: "low", -999: "low", -1000: "very-low",
	} {
		if got := priorityBucket(&v1.PodSpec{Priority: &priority}); got != want {
			t.Errorf("priority %d is in the bucket %s, want %s", priority, got, want)
		}
	}
	if a, b := priorityBucket(&v1.PodSpec{}), priorityBucket(nil); a != "normal" || b != "unknown" {
		t.Errorf("no priority: %s, no pod: %s", a, b)
	}
}
