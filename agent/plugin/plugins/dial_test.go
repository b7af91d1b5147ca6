package plugins

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/inputweight/codec"
)

// TestHeavyAnswer checks that a response with a huge number of empty devices is rejected before it is decoded. A response with 5000 devices
// is accepted.
func TestHeavyAnswer(t *testing.T) {
	c := codec.New(maxMemory)
	many := &pluginapi.ListAndWatchResponse{}
	for range 5000 {
		many.Devices = append(many.Devices, &pluginapi.Device{ID: "0123456789abcdef0123456789abcdef", Health: "Healthy"})
	}
	data, err := c.Marshal(many)
	must(t, err)
	var got pluginapi.ListAndWatchResponse
	if err := c.Unmarshal(data, &got); err != nil || len(got.Devices) != 5000 {
		t.Errorf("got %d devices, %v", len(got.Devices), err)
	}
	bomb := mem.BufferSlice{mem.SliceBuffer(strings.Repeat("\x0a\x00", maxAnswer/2))}
	if err := c.Unmarshal(bomb, &got); !errors.Is(err, inputweight.ErrTooHeavy) {
		t.Errorf("got %v with %d devices", err, len(got.Devices))
	}
}
