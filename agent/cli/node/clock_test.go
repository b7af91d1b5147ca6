package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// resetTrials are BundleTrials that record a time.
type resetTrials struct {
	node.BundleTrials
	reset *bool
}

func (r resetTrials) ResetClock(context.Context) error {
	*r.reset = true
	return nil
}

// TestClockOfBundles checks that islet clock reset also reaches the record of bundles.
func TestClockOfBundles(t *testing.T) {
	reset := false
	n, stop := servertest.Start(t, func(c *server.Config) { c.BundleTrials = resetTrials{reset: &reset} })
	defer stop()
	if got := run(t, n, "", "clock", "reset"); got.Code != 0 || !reset {
		t.Errorf("%+v, reset: %v", got, reset)
	}
}

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
