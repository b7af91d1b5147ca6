package hardware

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A tree is a fake host that consists of files. The creation of device nodes requires root.
type tree struct {
	t testing.TB
	host
}

func newTree(t testing.TB) *tree {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("device nodes need root")
	}
	tr := &tree{t, host{t.TempDir()}}
	for _, dir := range []string{"/dev", "/sys/dev/char", "/sys/dev/block", "/sys/devices", "/sys/bus", "/proc/self", "/etc"} {
		tr.dir(dir)
	}
	tr.file("/proc/sys/kernel/random/boot_id", "boot-1\n")
	tr.file("/etc/group", "root:x:0:\ndialout:x:20:pi\ngpio:x:993:\n")
	return tr
}

func (tr *tree) requireNoError(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) dir(path string) {
	tr.t.Helper()
	tr.requireNoError(os.MkdirAll(tr.absolutePath(path), 0o755))
}

func (tr *tree) file(path, text string) {
	tr.t.Helper()
	tr.dir(filepath.Dir(path))
	tr.requireNoError(os.WriteFile(tr.absolutePath(path), []byte(text), 0o644))
}

// link creates a relative symbolic link, as in /sys.
func (tr *tree) link(path, to string) {
	tr.t.Helper()
	tr.dir(filepath.Dir(path))
	rel, err := filepath.Rel(filepath.Dir(path), to)
	tr.requireNoError(err)
	tr.requireNoError(os.Symlink(rel, tr.absolutePath(path)))
}

// part creates a directory with attributes below /sys/devices. It represents a device on a bus.
func (tr *tree) part(sys, bus, driver string, attributes map[string]string) {
	tr.t.Helper()
	tr.dir(sys)
	tr.link(sys+"/subsystem", "/sys/bus/"+bus)
	if driver != "" {
		tr.link(sys+"/driver", "/sys/bus/"+bus+"/drivers/"+driver)
	}
	for name, value := range attributes {
		tr.file(sys+"/"+name, value+"\n")
	}
}

// usb creates a USB device below the root hub of a controller, and returns the directory of the device's interface. The parameter ports is
// the path of ports from the hub to the device.
func (tr *tree) usb(bus, ports, vendor, product, serial, driver string) (itf string) {
	tr.t.Helper()
	pci := "/sys/devices/pci0000:00/0000:00:14.0"
	hub := pci + "/usb" + bus
	if !tr.exists(hub) {
		if !tr.exists(pci) {
			tr.part(pci, "pci", "xhci_hcd", nil)
		}
		tr.part(hub, "usb", "usb", map[string]string{"idVendor": "1d6b", "idProduct": "0002", "version": " 2.00", "serial": "0000:00:14.0"})
	}
	dev := hub + "/" + bus + "-" + ports
	a := map[string]string{"idVendor": vendor, "idProduct": product}
	if serial != "" {
		a["serial"] = serial
	}
	tr.part(dev, "usb", "usb", a)
	itf = dev + "/" + bus + "-" + ports + ":1.0"
	tr.part(itf, "usb", driver, map[string]string{"bInterfaceNumber": "00"})
	return itf
}

// node creates a device with its device node.
func (tr *tree) node(sys, subsystem, name string, n number) {
	tr.t.Helper()
	tr.dir(sys)
	tr.link(sys+"/subsystem", "/sys/class/"+subsystem)
	tr.file(sys+"/uevent", "MAJOR="+strings.Replace(n.String(), ":", "\nMINOR=", 1)+"\nDEVNAME="+name+"\n")
	tr.file(sys+"/dev", n.String()+"\n")
	tr.link("/sys/dev/"+n.kind()+"/"+n.String(), sys)
	tr.mknod("/dev/"+name, n)
}

func (tr *tree) mknod(path string, n number) {
	tr.t.Helper()
	tr.dir(filepath.Dir(path))
	kind := uint32(unix.S_IFCHR)
	if n.block {
		kind = unix.S_IFBLK
	}
	tr.requireNoError(unix.Mknod(tr.absolutePath(path), kind|0o660, int(unix.Mkdev(n.major, n.minor))))
	tr.requireNoError(os.Chmod(tr.absolutePath(path), 0o660))
}

// unplug removes a device as the kernel does: first its directory, then its device node.
func (tr *tree) unplug(sys, name string, n number) {
	tr.t.Helper()
	tr.requireNoError(os.Remove(tr.absolutePath("/sys/dev/" + n.kind() + "/" + n.String())))
	tr.requireNoError(os.RemoveAll(tr.absolutePath(sys)))
	tr.requireNoError(os.Remove(tr.absolutePath("/dev/" + name)))
}

func char(major, minor uint32) number { return number{false, major, minor} }
func disk(major, minor uint32) number { return number{true, major, minor} }

// board creates the devices of a small single-board computer.
func board(t testing.TB) *tree {
	tr := newTree(t)
	soc := "/sys/devices/platform/soc"
	tr.part(soc, "platform", "", nil)
	uart := soc + "/fe201000.serial"
	tr.part(uart, "amba", "uart-pl011", nil)
	tr.node(uart+"/tty/ttyAMA0", "tty", "ttyAMA0", char(204, 64))
	gpio := soc + "/fe200000.gpio"
	tr.part(gpio, "platform", "pinctrl-bcm2835", nil)
	tr.node(gpio+"/gpiochip0", "gpio", "gpiochip0", char(254, 0))
	tr.node(gpio+"/gpiochip1", "gpio", "gpiochip1", char(254, 1))
	i2c := soc + "/fe804000.i2c"
	tr.part(i2c, "platform", "i2c-bcm2835", nil)
	tr.file(i2c+"/i2c-1/name", "bcm2835 (i2c@7e804000)\n")
	tr.node(i2c+"/i2c-1/i2c-dev/i2c-1", "i2c-dev", "i2c-1", char(89, 1))
	gps := tr.usb("1", "1.2", "1546", "01a7", "", "cdc_acm")
	tr.node(gps+"/tty/ttyACM0", "tty", "ttyACM0", char(166, 0))
	modem := tr.usb("1", "1.3", "10c4", "ea60", "0001", "cp210x")
	tr.part(modem+"/ttyUSB0", "usb-serial", "cp210x", map[string]string{"port_number": "0"})
	tr.node(modem+"/ttyUSB0/tty/ttyUSB0", "tty", "ttyUSB0", char(188, 0))
	camera := tr.usb("1", "1.4", "046d", "0825", "5C3D 7890/x", "uvcvideo")
	tr.node(camera+"/video4linux/video0", "video4linux", "video0", char(81, 0))
	tr.node(camera+"/video4linux/video1", "video4linux", "video1", char(81, 1))
	tr.node(camera+"/media0", "media", "media0", char(236, 0))
	tr.node("/sys/devices/virtual/mem/mem", "mem", "mem", char(1, 1))
	tr.node("/sys/devices/virtual/mem/null", "mem", "null", char(1, 3))
	tr.node("/sys/devices/virtual/block/loop0", "block", "loop0", disk(7, 0))
	mmc := soc + "/fe340000.mmc/mmc_host/mmc0/mmc0:aaaa"
	tr.part(mmc, "mmc", "mmcblk", nil)
	tr.node(mmc+"/block/mmcblk0", "block", "mmcblk0", disk(179, 0))
	tr.node(mmc+"/block/mmcblk0/mmcblk0p1", "block", "mmcblk0p1", disk(179, 1))
	tr.file(mmc+"/block/mmcblk0/mmcblk0p1/partition", "1\n")
	tr.file("/proc/self/mountinfo", "25 1 179:1 / / rw,noatime shared:1 - ext4 /dev/mmcblk0p1 rw\n")
	return tr
}
