package figures

import (
	"os"
	"testing"
	"time"
)

// IdleTime returns the time for which a benchmark observes an idle node. It skips the test unless
// make bench or bench-packages runs it.
func IdleTime(t testing.TB) time.Duration {
	t.Helper()
	SkipUnlessBench(t)
	text := os.Getenv("ISLET_BENCH_IDLE")
	if text == "" {
		return time.Minute
	}
	idle, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ISLET_BENCH_IDLE: %v", err)
	}
	return idle
}

// SkipUnlessBench skips a benchmark unless make bench or bench-packages runs it.
func SkipUnlessBench(t testing.TB) {
	t.Helper()
	if os.Getenv("ISLET_BENCH") == "" {
		t.Skip("figures are measured by make bench and make bench-packages")
	}
}
