package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// TestClock checks that islet clock shows the node's clock and its floor. The command islet clock reset deletes the floor.
func TestClock(t *testing.T) {
	n, stop := startNode(t)
	defer stop()
	now := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)
	n.Time = api.Clock{Now: now, Machine: now.AddDate(-1, 0, 0), Floor: now, Signed: now.Add(-time.Hour),
		Refused: "2031-11-22T07:00:00Z: the server's own certificate is over"}
	got := run(t, n, "", "clock")
	for _, want := range []string{"Floor:", "2026-11-22T07:00:00Z", "2026-11-22T06:00:00Z", "Not trusted: 2031", "behind by 8760h"} {
		if got.Code != 0 || !strings.Contains(got.Out, want) {
			t.Errorf("%q is missing: %+v", want, got)
		}
	}
	if got = run(t, n, "", "clock", "reset"); got.Code != 0 || strings.Contains(got.Out, "Floor:") {
		t.Errorf("got %+v", got)
	}
	if got = run(t, n, "", "clock", "set"); got.Code != 2 {
		t.Errorf("got %+v", got)
	}
}
