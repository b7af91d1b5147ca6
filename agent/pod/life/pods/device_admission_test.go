package pods

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
)

// counter is a fake device manager with a limited number of devices. Each pod gets one.
type counter struct {
	left int
	fail error
	asks int
}

func (*counter) NeedsAllocation(*v1.Pod) bool { return true }

func (c *counter) Admit(context.Context, *v1.Pod) (string, string, error) {
	if c.asks++; c.fail != nil {
		return "", "", c.fail
	}
	if c.left == 0 {
		return unexpected, "Allocate failed due to requested number of devices unavailable, which is unexpected", nil
	}
	c.left--
	return "", "", nil
}

const unexpected = "UnexpectedAdmissionError"

// TestDevices checks that a pod is rejected if it does not get its devices. The decision about a static pod is repeated when the node's
// devices change. If the device manager returns an error, no decision is stored.
func TestDevices(t *testing.T) {
	w, c := newWorld(t), &counter{left: 1}
	w.c.Devices = c
	w.setPods(t, desired.API, aPod("a", "1", 0), aPod("b", "1", 0))
	w.setPods(t, desired.File, aPod("static", "1", 0))
	w.admit(t, "a", "admitted")
	w.admit(t, "b", unexpected)
	w.admit(t, "static", unexpected)
	w.admit(t, "static", unexpected)
	if c.asks != 3 || w.poked["static"] != 0 {
		t.Errorf("%d requests, poked %v", c.asks, w.poked)
	}
	w.NodeChanged() // a plugin has registered
	if w.poked["static"] != 1 || w.poked["b"] != 0 {
		t.Errorf("poked %v", w.poked)
	}
	c.fail = errDisk
	if err := w.Admit(t.Context(), "static"); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
	c.fail, c.left = nil, 1
	w.admit(t, "static", "admitted")
	w.restart(t)
	w.c.Devices = c
	w.admit(t, "b", unexpected)
}
