package host_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/islet-edge/islet/metrics/host"
)

// TestMarks checks that only values that identify the machine are returned.
func TestMarks(t *testing.T) {
	card := func(name, address, assigned, kind string, device bool) map[string]string {
		at := "sys/class/net/" + name + "/"
		files := map[string]string{at + "address": address, at + "addr_assign_type": assigned, at + "type": kind}
		if device {
			files[at+"device/uevent"] = ""
		}
		return files
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nothing":             {},
		"a Raspberry Pi":      {map[string]string{"proc/device-tree/serial-number": "10000000A1B2C3D4\x00"}, []string{"10000000a1b2c3d4"}},
		"a virtual machine":   {map[string]string{"sys/class/dmi/id/product_uuid": "4C4C4544-0038\n"}, []string{"4c4c4544-0038"}},
		"a card":              {card("eth0", "dc:a6:32:00:00:01", "0", "1", true), []string{"dc:a6:32:00:00:01"}},
		"a virtual card":      {card("veth0", "dc:a6:32:00:00:01", "0", "1", false), nil},
		"a random address":    {card("usb0", "de:a6:32:00:00:01", "1", "1", true), nil},
		"a chosen address":    {card("eth0", "dc:a6:32:00:00:01", "3", "1", true), nil},
		"no address":          {card("eth0", "00:00:00:00:00:00", "0", "1", true), nil},
		"no Ethernet":         {card("can0", "dc:a6:32:00:00:01", "0", "280", true), nil},
		"not an address":      {card("eth0", "../../etc/shadow", "0", "1", true), nil},
		"placeholders":        {map[string]string{"sys/class/dmi/id/product_serial": "To Be Filled By O.E.M.\n", "sys/class/dmi/id/board_serial": "Default string\n"}, nil},
		"a UUID of all F":     {map[string]string{"sys/class/dmi/id/product_uuid": "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF\n"}, nil},
		"zeros":               {map[string]string{"sys/class/dmi/id/board_serial": "00000000\n"}, nil},
		"the UUID of a maker": {map[string]string{"sys/class/dmi/id/product_uuid": "03000200-0400-0500-0006-000700080009\n"}, nil},
		"too short":           {map[string]string{"sys/class/dmi/id/product_serial": "1\n", "sys/class/dmi/id/board_serial": " \n"}, nil},
		"the same number twice": {map[string]string{"sys/class/dmi/id/product_serial": "pf1abcd\n", "sys/class/dmi/id/board_serial": "PF1ABCD\n"},
			[]string{"pf1abcd", "pf1abcd"}},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		serials, cards := host.New(host.Config{Root: root}).Marks()
		if got := slices.Concat(serials, cards); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
