package growthtest_test

import (
	"fmt"
	"testing"

	"github.com/islet-edge/islet/internal/growthtest"
)

// A failing records whether an error was reported.
type failing struct {
	testing.TB
	failed string
}

func (f *failing) Helper()                           {}
func (f *failing) Errorf(format string, args ...any) { f.failed = fmt.Sprintf(format, args...) }

var sum int

// TestLinear checks that Linear accepts linear time and rejects quadratic time.
func TestLinear(t *testing.T) {
	f := &failing{TB: t}
	if growthtest.Linear(f, 1_000_000, func(n int) {
		for i := range n {
			sum += i
		}
	}); f.failed != "" {
		t.Errorf("linear: %s", f.failed)
	}
	if growthtest.Linear(f, 2_500, func(n int) {
		for i := range n * n {
			sum += i
		}
	}); f.failed == "" {
		t.Error("quadratic time was not reported")
	}
}
