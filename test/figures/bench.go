package figures

import (
	"os"
	"testing"
	"time"
)

// Idle skips a test that measures unless make bench, or bench-packages, runs it, and gives how long it looks at a node
// that does nothing.
func Idle(t testing.TB) time.Duration {
	t.Helper()
	Bench(t)
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

// Bench skips a test that measures unless make bench, or bench-packages, runs it.
func Bench(t testing.TB) {
	t.Helper()
	if os.Getenv("ISLET_BENCH") == "" {
		t.Skip("figures are measured by make bench and make bench-packages")
	}
}
