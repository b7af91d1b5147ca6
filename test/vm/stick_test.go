package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// large is the reference of an image whose content cannot be compressed and takes seconds to read.
const large = "registry.test/large:1"

// A stick is a USB stick with a bundle.
type stick struct {
	name   string
	number int    // of the bundle
	format string // a command that gives the block device $1 a file system with the label ISLET and the folder $2
}

// onFileSystem returns a command that formats a device by the given command and copies a folder to it.
func onFileSystem(kind, mkfs string) string {
	return mkfs + ` "$1" && mount -t ` + kind + ` "$1" /mnt && cp -r "$2"/. /mnt/ && umount /mnt`
}

// TestSticks plugs in USB sticks with all file systems that the documents name. The node applies their bundles, and writes its state to
// those that are writable. It also pulls out a stick while the node reads it, and plugs in two sticks at once.
func TestSticks(t *testing.T) {
	requireHardware(t)
	archive, err := os.ReadFile(largeArchive(t, large, 95))
	if err != nil {
		t.Fatal(err)
	}
	v, step := hardware(t, "islet bundle status; lsblk -f; ls /mnt; dmesg | tail -30", map[string]string{"large.tar": string(archive)})
	const fat = "mkfs.vfat -n ISLET >/dev/null"
	sticks := []stick{
		{"fat", 1, onFileSystem("vfat", fat)},
		{"exfat", 2, onFileSystem("exfat", "mkfs.exfat -L ISLET >/dev/null")},
		{"ext4", 3, onFileSystem("ext4", "mkfs.ext4 -q -L ISLET")},
		{"iso", 4, `xorriso -as mkisofs -quiet -V ISLET -R -o /root/iso "$2" && dd if=/root/iso of="$1" bs=1M conv=fsync 2>/dev/null`},
		{"pulled", 5, onFileSystem("vfat", fat)},
		{"first", 6, onFileSystem("vfat", fat)},
		{"second", 7, onFileSystem("exfat", "mkfs.exfat -L ISLET >/dev/null")},
	}
	v.Run("/root/islet/install.sh && mkdir -p /root/kiosk/manifests /root/kiosk/images && cp /payload/podtool.tar /root/kiosk/images/")
	key := strings.TrimSpace(v.Run("islet bundle keys new /root/anna.key"))
	v.Write("/root/kiosk/manifests/p1.yaml", manifest("p1", "count", "100ms"))
	for _, s := range sticks {
		description, out := "", "/root/content/kiosk.tar"
		if s.name == "pulled" {
			v.Run("cp /payload/files/large.tar /root/kiosk/images/")
			description = "images: [" + large + "]\n"
		} else {
			v.Run("rm -f /root/kiosk/images/large.tar")
		}
		if s.number%2 == 0 {
			out = "/root/content/kiosk/"
		}
		v.Write("/root/kiosk/bundle.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\nnumber: %d\n", s.number)+description)
		v.Run("rm -rf /root/content && mkdir /root/content && islet bundle build /root/kiosk -o " + out + " && islet bundle sign " + out + " --key /root/anna.key")
		v.plugStick(s.name)
		v.Run("set -- /dev/disk/by-id/*" + s.name + "* /root/content; " + s.format + " && sync")
		v.Unplug(s.name)
		v.Await("! ls /dev/disk/by-id/*" + s.name + "*")
		step("prepared the stick " + s.name)
	}
	v.Write("/etc/islet/edge.yaml", "apiVersion: islet.dev/v1beta1\nkind: EdgeConfiguration\nbundle:\n  keys: ['"+key+
		"']\n  healthyFor: 2s\n  deadline: 4m\n  medium: {label: ISLET, result: true}\n")
	v.Run(`echo 'ISLET_ARGS="--config=/etc/islet/kubelet.yaml --edge-config=/etc/islet/edge.yaml"' >/etc/default/islet && systemctl restart islet`)
	inUse := func(number int) {
		t.Helper()
		v.Await(fmt.Sprintf("islet bundle status 2>&1 | grep 'in use     kiosk number %d,'", number))
		waitForPods(v, 1)
	}
	for _, s := range sticks[:4] {
		v.plugStick(s.name)
		inUse(s.number)
		result := "mount -o ro /dev/disk/by-id/*" + s.name + "* /mnt && { cat /mnt/islet-*.json; umount /mnt; }"
		if s.name == "iso" {
			if out := v.Run("islet bundle status"); !strings.Contains(out, "kept") {
				t.Errorf("the status after the bundle on ISO 9660:\n%s", out)
			}
		} else {
			v.Await(result + ` | grep -E '"result": *"kept"'`)
		}
		v.Unplug(s.name)
		step("bundle on " + s.name)
	}

	pulled := sticks[4]
	v.plugStick(pulled.name)
	// Pull it out when 8 of 95 MiB were read.
	v.Await("d=$(readlink -f /dev/disk/by-id/*pulled*) && awk '{exit $3 < 16384}' /sys/block/${d##*/}/stat")
	v.Unplug(pulled.name)
	v.Await("! ls /dev/disk/by-id/*pulled*")
	v.Await("islet bundle status 2>&1 | grep '^stick .*: refused'")
	if out := v.Run("islet bundle status; islet pods"); !strings.Contains(out, "in use     kiosk number 4,") {
		t.Errorf("after a stick was pulled out:\n%s", out)
	}
	waitForPods(v, 1)
	v.plugStick(pulled.name)
	inUse(pulled.number)
	v.Unplug(pulled.name)
	step("pulled out and plugged in again")

	for _, s := range sticks[5:] {
		v.plugStick(s.name)
	}
	inUse(sticks[6].number)
	for _, s := range sticks[5:] {
		v.Unplug(s.name)
	}
	step("two sticks at once")
}

// plugStick plugs in the USB stick with the given name. A new stick is empty.
func (v *VM) plugStick(name string) {
	v.t.Helper()
	image := filepath.Join(v.dir, "stick-"+name)
	if _, err := os.Stat(image); err != nil {
		v.command("truncate", "-s", "160M", image)
	}
	v.plugged++ // the emulator removes a drive with its device, but not at once
	drive := fmt.Sprintf("drive%d", v.plugged)
	v.sendCommand("drive_add 0 if=none,format=raw,id=" + drive + ",file.locking=off,file=" + image)
	v.Plug("usb-storage,bus=usb.0,removable=on,serial=" + name + ",drive=" + drive + ",id=" + name)
	v.Await("ls /dev/disk/by-id/*" + name + "*")
}
