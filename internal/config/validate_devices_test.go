package config

import (
	"path/filepath"
	"strings"
	"testing"
)

const edgeHead = "apiVersion: " + EdgeAPIVersion + "\nkind: " + EdgeKind + "\n"

func TestDevices(t *testing.T) {
	const serial = "resource: islet.dev/serial, match: [{paths: [/dev/ttyUSB*]}]"
	for _, c := range []struct{ text, want string }{
		{"{" + serial + "}", ""},
		{"{resource: islet.dev/gps, match: [{usb: {vendor: '1546', product: 01A7, serial: 'A*'}, driver: cdc_acm, subsystem: tty, attributes: {bInterfaceNumber: '0?'}}], unit: device, permissions: rwm, group: dialout, containerPath: /dev/gps, shared: 2}", ""},
		{"{" + serial + ", group: 20}", ""},
		{"{" + serial + ", group: '20'}", ""},
		{"{" + serial + ", containerPath: /dev/snd/pcm0}", ""},
		{"{resource: serial, match: [{driver: x}]}", `devices[0].resource: Invalid value: "serial": must have a domain`},
		{"{resource: a.kubernetes.io/serial, match: [{driver: x}]}", "devices[0].resource: Invalid value: \"a.kubernetes.io/serial\": must not be"},
		{"{resource: requests.x/serial, match: [{driver: x}]}", "devices[0].resource: Invalid value"},
		{"{resource: 'islet.dev/a b', match: [{driver: x}]}", "devices[0].resource: Invalid value"},
		{"{" + serial + "}, {" + serial + "}", "devices[1].resource: Duplicate value"},
		{"{resource: islet.dev/x}", "devices[0].match: Required value"},
		{"{resource: islet.dev/x, match: [{}]}", "devices[0].match[0]: Required value"},
		{"{resource: islet.dev/x, match: [{usb: {}}]}", "devices[0].match[0]: Required value"},
		{"{resource: islet.dev/x, match: [{paths: ['/dev/*']}]}", "devices[0].match[0].paths[0]: Invalid value: \"/dev/*\": must begin"},
		{"{resource: islet.dev/x, match: [{paths: ['/dev/[a-z]*']}]}", "paths[0]: Invalid value"},
		{"{resource: islet.dev/x, match: [{paths: ['/dev/\\x']}]}", "paths[0]: Invalid value"},
		{"{resource: islet.dev/x, match: [{paths: [/dev/ttyA, /dev/../etc/passwd]}]}", "paths[1]: Invalid value: \"/dev/../etc/passwd\": must be a clean path"},
		{"{resource: islet.dev/x, match: [{paths: [/etc/passwd]}]}", "paths[0]: Invalid value: \"/etc/passwd\": must be a pattern below /dev"},
		{"{resource: islet.dev/x, match: [{paths: [/dev/]}]}", "paths[0]: Invalid value"},
		{"{resource: islet.dev/x, match: [{paths: [ttyUSB0]}]}", "paths[0]: Invalid value"},
		{"{resource: islet.dev/x, match: [{paths: ['/dev/tty[']}]}", "each [ is closed"},
		{"{resource: islet.dev/x, match: [{usb: {vendor: 10c}}]}", "match[0].usb.vendor: Invalid value"},
		{"{resource: islet.dev/x, match: [{usb: {product: '1234'}}]}", "match[0].usb.vendor: Required value"},
		{"{resource: islet.dev/x, match: [{usb: {serial: '['}}]}", "match[0].usb.serial: Invalid value"},
		{"{resource: islet.dev/x, match: [{driver: ../x}]}", "match[0].driver: Invalid value"},
		{"{resource: islet.dev/x, match: [{subsystem: a/b}]}", "match[0].subsystem: Invalid value"},
		{"{resource: islet.dev/x, match: [{attributes: {../../x: z}}]}", "match[0].attributes: Invalid value: \"../../x\""},
		{"{resource: islet.dev/x, match: [{attributes: {/etc/passwd: z}}]}", "match[0].attributes: Invalid value"},
		{"{resource: islet.dev/x, match: [{attributes: {name: '['}}]}", "match[0].attributes[name]: Invalid value"},
		{"{" + serial + ", unit: disk}", "devices[0].unit: Unsupported value"},
		{"{" + serial + ", permissions: rx}", "devices[0].permissions: Invalid value"},
		{"{" + serial + ", permissions: rr}", "devices[0].permissions: Invalid value"},
		{"{" + serial + ", group: 0}", "devices[0].group: Invalid value"},
		{"{" + serial + ", group: root}", "devices[0].group: Invalid value"},
		{"{" + serial + ", group: 'a:b/c'}", "devices[0].group: Invalid value"},
		{"{" + serial + ", containerPath: /etc/passwd}", "devices[0].containerPath: Invalid value"},
		{"{" + serial + ", containerPath: /dev/null}", "devices[0].containerPath: Invalid value: \"/dev/null\": already exists in every container"},
		{"{" + serial + ", containerPath: /dev/shm/x}", "devices[0].containerPath: Invalid value"},
		{"{" + serial + ", containerPath: '/dev/serial*'}", "devices[0].containerPath: Invalid value"},
		{"{" + serial + ", shared: -1}", "devices[0].shared: Invalid value"},
		{"{" + serial + ", colour: red}", "unknown field"},
		{strings.Repeat("{"+serial+"}, ", 70), "devices: Too many: 70"},
	} {
		dir := writeFiles(t, map[string]string{"e.yaml": edgeHead + "devices: [" + c.text + "]\n"})
		_, _, err := Load([]string{"--hostname-override=n", "--edge-config=" + filepath.Join(dir, "e.yaml")})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s:\n got %v\nwant %q", c.text, err, c.want)
		}
	}
}
