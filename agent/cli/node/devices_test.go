package node_test

import (
	"encoding/json"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

func TestDevices(t *testing.T) {
	n, stop := startNode(t)
	defer stop()
	check(t, n, run(t, n, "", "devices"), command.ExitOK, "",
		"no resource has devices: see 'devices' of the EdgeConfiguration, and 'islet devices --all' for what is there\n")
	n.Devices = []api.Device{
		{Resource: "islet.dev/gps", ID: "usb-1546:01a7-9-if00-tty", Nodes: []string{"/dev/ttyACM0"}, State: api.DeviceUsed, Users: []string{"default/position/gpsd"}, Subsystem: "tty", Driver: "cdc_acm", Vendor: "1546", Product: "01a7", Serial: "9", Name: "u-blox\x1b[2J"},
		{Resource: "islet.dev/gpio", ID: "all", Nodes: []string{"/dev/gpiochip0", "/dev/gpiochip1"}, State: api.DeviceUsed, Users: []string{"a/b/c", "a/b/d"}, Shared: 10},
		{Resource: "islet.dev/disk", Nodes: []string{"/dev/sda"}, State: api.DeviceKept, Message: "is mounted on the host at /"},
		{Resource: "islet.dev/serial", ID: "x", State: api.DeviceAway, Users: []string{"a/b/c"}},
	}
	n.OtherDevices = []api.Device{{Nodes: []string{"/dev/fuse"}, State: api.DeviceNone, Subsystem: "misc"}}
	check(t, n, run(t, n, "", "devices"), command.ExitOK,
		`RESOURCE           DEVICE                     NODES                           STATE       USED BY
islet.dev/gps      usb-1546:01a7-9-if00-tty   /dev/ttyACM0                    used        default/position/gpsd
islet.dev/gpio     all                        /dev/gpiochip0,/dev/gpiochip1   used 2/10   a/b/c,a/b/d
islet.dev/disk     -                          /dev/sda                        kept        is mounted on the host at /
islet.dev/serial   x                          -                               away        a/b/c
`, "")
	n.Devices = n.Devices[:1]
	check(t, n, run(t, n, "", "dev", "-a", "--no-headers"), command.ExitOK,
		`islet.dev/gps   usb-1546:01a7-9-if00-tty   /dev/ttyACM0   used        tty    cdc_acm   1546:01a7 9 u-blox?[2J   default/position/gpsd
-               -                          /dev/fuse      unmatched   misc   -         -                        -
`, "")
	var got []api.Device
	if r := run(t, n, "", "devices", "-o", "json"); json.Unmarshal([]byte(r.Out), &got) != nil || len(got) != 1 ||
		got[0].ID != n.Devices[0].ID {
		t.Errorf("%+v", r)
	}
}
