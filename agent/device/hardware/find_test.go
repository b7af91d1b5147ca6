package hardware

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/config"
)

func class(resource string, matches ...config.DeviceMatch) config.DeviceClass {
	return config.DeviceClass{Resource: resource, Match: matches}
}

func paths(patterns ...string) config.DeviceMatch { return config.DeviceMatch{Paths: patterns} }

// This helper returns the IDs of the devices of a class, each with its device nodes.
func (tr *tree) ids(c config.DeviceClass, ports map[string]string) (out []string) {
	tr.t.Helper()
	nodes, _, f, err := tr.findNodes([]config.DeviceClass{c})
	tr.requireNoError(err)
	for _, n := range nodes[0] {
		f.locateNode(n)
	}
	for _, u := range f.groupUnits(&c, nodes[0], ports) {
		text := u.id
		for _, n := range u.nodes {
			text += " " + strings.TrimPrefix(n.path, "/dev/")
		}
		out = append(out, text)
	}
	return out
}

func TestMatch(t *testing.T) {
	tr := board(t)
	tr.link("/dev/serial/by-id/usb-Silabs_0001-if00", "/dev/ttyUSB0")
	tr.requireNoError(os.Symlink("/etc/group", tr.absolutePath("/dev/ttyetc")))
	tr.requireNoError(os.Symlink("ttyloop", tr.absolutePath("/dev/ttyloop")))
	tr.requireNoError(os.Symlink("/dev", tr.absolutePath("/dev/self")))
	tr.mknod("/dev/pts/3", char(136, 3))
	for _, c := range []struct {
		name  string
		match config.DeviceMatch
		want  string
	}{
		{"a pattern", paths("/dev/ttyA*"), "ttyACM0 ttyAMA0"},
		{"several, and one twice", paths("/dev/ttyUSB*", "/dev/ttyUSB0", "/dev/ttyS*"), "ttyUSB0"},
		{"all terminals, and links to nothing", paths("/dev/tty*"), "ttyACM0 ttyAMA0 ttyUSB0"},
		{"a link of udev", paths("/dev/serial/by-id/*Silabs*"), "ttyUSB0"},
		{"through a link to a directory", paths("/dev/self/ttyUSB0"), ""},
		{"what /sys does not know", paths("/dev/pts/*"), "pts/3"},
		{"the same, with a driver", config.DeviceMatch{Paths: []string{"/dev/pts/*"}, Driver: "x"}, ""},
		{"a driver", config.DeviceMatch{Driver: "cp210x"}, "ttyUSB0"},
		{"a driver and another path", config.DeviceMatch{Driver: "cp210x", Paths: []string{"/dev/ttyACM*"}}, ""},
		{"a subsystem", config.DeviceMatch{Subsystem: "gpio"}, "gpiochip0 gpiochip1"},
		{"USB", config.DeviceMatch{USB: &config.USBMatch{Vendor: "046D"}, Subsystem: "video4linux"}, "video0 video1"},
		{"a product", config.DeviceMatch{USB: &config.USBMatch{Vendor: "10c4", Product: "EA60"}}, "ttyUSB0"},
		{"another product", config.DeviceMatch{USB: &config.USBMatch{Vendor: "10c4", Product: "ea61"}}, ""},
		{"a serial number", config.DeviceMatch{USB: &config.USBMatch{Serial: "00*"}}, "ttyUSB0"},
		{"the serial number of a hub is not that of its devices", config.DeviceMatch{USB: &config.USBMatch{Serial: "0000:*"}}, ""},
		{"an attribute of its interface", config.DeviceMatch{Subsystem: "tty", Attributes: map[string]string{"bInterfaceNumber": "0?"}}, "ttyACM0 ttyUSB0"},
		{"one with a slash in its value", config.DeviceMatch{Attributes: map[string]string{"serial": "5C3D 7890/x"}}, "media0 video0 video1"},
		{"one of the adapter", config.DeviceMatch{Subsystem: "i2c-dev", Attributes: map[string]string{"name": "bcm2835*"}}, "i2c-1"},
		{"one that there is not", config.DeviceMatch{Attributes: map[string]string{"colour": "*"}}, ""},
	} {
		var got []string
		for _, id := range tr.ids(class("r", c.match), nil) {
			got = append(got, strings.Fields(id)[1:]...)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

func TestFirstClassWins(t *testing.T) {
	tr := board(t)
	nodes, _, _, err := tr.findNodes([]config.DeviceClass{class("gps", paths("/dev/ttyACM0")), class("serial", paths("/dev/ttyA*"))})
	tr.requireNoError(err)
	if len(nodes[0]) != 1 || len(nodes[1]) != 1 || nodes[1][0].number != char(204, 64) {
		t.Errorf("%v %v", nodes[0], nodes[1])
	}
}

// TestKept checks which devices are offered only if a class names their paths. These are devices that the host uses and devices that give
// access to the whole host.
func TestKept(t *testing.T) {
	tr := board(t)
	tr.file("/proc/swaps", "Filename Type Size Used Priority\n/dev/loop0 partition 1 0 -2\n")
	tr.node("/sys/devices/virtual/block/loop1", "block", "loop1", disk(7, 1))
	tr.node("/sys/devices/virtual/block/dm-0", "block", "dm-0", disk(253, 0))
	tr.node("/sys/devices/virtual/block/loop2", "block", "loop2", disk(7, 2))
	tr.link("/sys/devices/virtual/block/dm-0/slaves/loop2", "/sys/devices/virtual/block/loop2")
	tr.link("/dev/mapper/root", "/dev/dm-0")
	tr.file("/proc/self/mountinfo", "25 1 179:1 / / rw - ext4 /dev/root rw\n26 25 0:44 / /data rw - btrfs /dev/mapper/root rw\nshort\n")
	for _, c := range []struct {
		match config.DeviceMatch
		given string
		why   string
	}{
		{paths("/dev/mmcblk0"), "", "is mounted on the host at /"},
		{paths("/dev/mmcblk0p1"), "", "is mounted on the host at /"},
		{paths("/dev/loop0"), "", "is swap of the host"},
		{paths("/dev/dm-0"), "", "is mounted on the host at /data"},
		{paths("/dev/loop2"), "", "is mounted on the host at /data"},
		{config.DeviceMatch{Subsystem: "block", Paths: []string{"/dev/loop*"}}, "/dev/loop1", "is swap of the host"},
		{paths("/dev/loop1"), "/dev/loop1", ""},
		{paths("/dev/loop[1]"), "", "is a disk: name it"},
		{config.DeviceMatch{Attributes: map[string]string{"dev": "7:1"}}, "", "is a disk: name it"},
		{paths("/dev/me*"), "/dev/media0", "gives access to the memory"},
		{paths("/dev/mem"), "/dev/mem", ""},
		{paths("/dev/nul*"), "/dev/null", ""},
	} {
		nodes, kept, f, err := tr.findNodes([]config.DeviceClass{class("r", c.match)})
		tr.requireNoError(err)
		given, why := "", ""
		for _, n := range nodes[0] {
			f.locateNode(n)
			given += n.path
		}
		for _, k := range kept {
			why += k.Path + " " + k.Why + "; "
			if !strings.HasPrefix(k.Path, "/dev/") {
				t.Errorf("%+v: %+v has no path", c.match, k)
			}
		}
		if given != c.given || (c.why == "") != (why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%+v: given %q, kept %q", c.match, given, why)
		}
	}
}

func TestIdentity(t *testing.T) {
	tr := board(t)
	all := config.DeviceMatch{Paths: []string{"/dev/tty*", "/dev/gpio*", "/dev/i2c*", "/dev/video*", "/dev/media*", "/dev/null", "/dev/pts/*"}}
	tr.mknod("/dev/pts/3", char(136, 3))
	want := []string{
		"amba-fe201000.serial-tty ttyAMA0",
		"dev-pts-3 pts/3",
		"platform-fe200000.gpio-gpio gpiochip0",
		"platform-fe200000.gpio-gpio-1 gpiochip1",
		"platform-fe804000.i2c-i2c-dev i2c-1",
		"usb-10c4:ea60-0001-if00-tty ttyUSB0",
		"usb-046d:0825-5C3D_7890-x-if00-media media0",
		"usb-046d:0825-5C3D_7890-x-if00-video4linux video0",
		"usb-046d:0825-5C3D_7890-x-if00-video4linux-1 video1",
		"usb-1546:01a7-pci-0000:00:14.0-usb2-1.2-if00-tty ttyACM0",
		"virtual-mem-null null",
	}
	if got := tr.ids(class("r", all), nil); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	c := class("r", config.DeviceMatch{USB: &config.USBMatch{Vendor: "046d"}})
	c.Unit = unitDevice
	if got := tr.ids(c, nil); !slices.Equal(got, []string{"usb-046d:0825-5C3D_7890-x media0 video0 video1"}) {
		t.Errorf("a whole camera: %q", got)
	}
	c.Unit = unitAll
	if got := tr.ids(c, nil); !slices.Equal(got, []string{"all media0 video0 video1"}) {
		t.Errorf("all: %q", got)
	}
}

// TestIdentityLasts checks that a device keeps its ID after a reboot although its kernel numbers change. A device with a serial number
// keeps its ID even at another port.
func TestIdentityLasts(t *testing.T) {
	all := class("r", paths("/dev/tty[UA][SC]*"))
	stems := func(tr *tree) (out []string) {
		for _, id := range tr.ids(all, nil) {
			out = append(out, strings.Fields(id)[0])
		}
		return out
	}
	before := stems(board(t))
	tr := newTree(t)
	tr.node(tr.usb("1", "1.2", "1546", "01a7", "", "cdc_acm")+"/tty/ttyACM7", "tty", "ttyACM7", char(166, 7))
	modem := tr.usb("1", "2", "10c4", "ea60", "0001", "cp210x")
	tr.part(modem+"/ttyUSB4", "usb-serial", "cp210x", nil)
	tr.node(modem+"/ttyUSB4/tty/ttyUSB4", "tty", "ttyUSB4", char(188, 4))
	if after := stems(tr); !slices.Equal(after, before) || len(after) != 2 {
		t.Errorf("%q, then %q", before, after)
	}
}

// TestSameSerial checks that devices with the same serial number have different IDs. A device in use keeps its ID.
func TestSameSerial(t *testing.T) {
	tr := newTree(t)
	c := class("r", paths("/dev/ttyUSB*"))
	for i, port := range []string{"1", "2", "10"} {
		itf := tr.usb("1", port, "1a86", "7523", "1", "ch341")
		name := "ttyUSB" + string(rune('0'+i))
		tr.node(itf+"/"+name+"/tty/"+name, "tty", name, char(188, uint32(i)))
	}
	const id, at = "usb-1a86:7523-1-if00-tty", "@pci-0000:00:14.0-usb2-"
	if got := tr.ids(c, nil); !slices.Equal(got, []string{id + " ttyUSB0", id + at + "2 ttyUSB1", id + at + "10 ttyUSB2"}) {
		t.Errorf("%q", got)
	}
	was := map[string]string{portKey("r", id): "pci-0000:00:14.0-usb2-2"}
	if got := tr.ids(c, was); !slices.Equal(got, []string{id + " ttyUSB1", id + at + "1 ttyUSB0", id + at + "10 ttyUSB2"}) {
		t.Errorf("a container has the device at port 2: %q", got)
	}
	delete(was, portKey("r", id))
	was[portKey("r", id+at+"1")] = ""
	if got := tr.ids(c, was); !slices.Equal(got, []string{id + " ttyUSB1", id + at + "10 ttyUSB2", id + at + "1 ttyUSB0"}) {
		t.Errorf("a container has the device at port 1, which was the second one before: %q", got)
	}
}

func TestNatural(t *testing.T) {
	in := []string{"a10", "a2", "a", "b1", "a02", "", "a2b", "10", "9", "a99999999999999999999999", "a100000000000000000000000"}
	slices.SortFunc(in, compareNatural)
	if got := strings.Join(in, " "); got != " 9 10 a a2 a2b a02 a10 a99999999999999999999999 a100000000000000000000000 b1" {
		t.Errorf("%q", got)
	}
}

func TestNumbered(t *testing.T) {
	for _, c := range []struct {
		path string
		i    int
		want string
	}{{"/dev/gps", 0, "/dev/gps"}, {"/dev/gps", 2, "/dev/gps2"}, {"/dev/serial0", 0, "/dev/serial0"}, {"/dev/serial0", 11, "/dev/serial11"}, {"/dev/v4", 1, "/dev/v5"}, {"/dev/x99999999999999999999", 1, "/dev/x999999999999999999991"}} {
		if got := numberedPath(c.path, c.i); got != c.want {
			t.Errorf("%s, %d: %s", c.path, c.i, got)
		}
	}
}
