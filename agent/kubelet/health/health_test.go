package health_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/health"
)

func TestNotReady(t *testing.T) {
	for _, tt := range []struct {
		overdue, busy time.Duration
		network       error
		off           string
		want          []string
	}{
		{},
		{off: "node is shutting down", want: []string{"node is shutting down"}},
		{overdue: time.Minute, busy: 2 * time.Minute},
		{overdue: 3 * time.Minute, want: []string{"a pod has been waiting for its worker for 3m0s"}},
		{busy: time.Hour, network: errors.New("no conflist"), want: []string{"the container runtime has not answered for 1h0m0s", "no conflist"}},
	} {
		h := health.New(health.Config{
			StartDelay: func() time.Duration { return tt.overdue }, CallDuration: func() time.Duration { return tt.busy }, Network: func() error { return tt.network }, StartsBlocked: func() string { return tt.off },
		})
		if got := h.NotReady(t.Context()); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
