package cri

import (
	"testing"

	"golang.org/x/time/rate"
)

var (
	_ Runtime = (*Client)(nil)
	_ Images  = (*Client)(nil)
	_ Events  = (*Client)(nil)
)

func TestDialEndpoint(t *testing.T) {
	for endpoint, ok := range map[string]bool{"/run/x.sock": true, "unix:///run/x.sock": true, "": false, "run/x.sock": false, "tcp://1.2.3.4:5": false} {
		c, err := Dial(endpoint)
		if (err == nil) != ok {
			t.Errorf("%q: %v", endpoint, err)
		}
		if err == nil {
			c.Close()
		}
	}
}

// TestPullRate checks that 0 pulls per second means no limit. The burst is at least one.
func TestPullRate(t *testing.T) {
	for _, x := range []struct {
		perSecond, burst int
		limit            rate.Limit
		atOnce           int
	}{{0, 10, rate.Inf, 0}, {5, 10, 5, 10}, {5, 0, 5, 1}} {
		if r := PullRate(x.perSecond, x.burst); r.Limit() != x.limit || r.Burst() != x.atOnce {
			t.Errorf("%+v: limit %v, burst %d", x, r.Limit(), r.Burst())
		}
	}
}
