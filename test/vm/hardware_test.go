package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// edgeConfig gives pods a USB serial adapter, a camera and an I2C bus; never the disk.
const edgeConfig = `apiVersion: islet.dev/v1alpha1
kind: EdgeConfiguration
devices:
- {resource: islet.dev/modem, match: [{usb: {vendor: "0403", serial: "MODEM*"}, subsystem: tty}], containerPath: /dev/modem, group: 1234}
- {resource: islet.dev/camera, match: [{driver: vivid, subsystem: video4linux}], unit: all}
- {resource: islet.dev/i2c, match: [{subsystem: i2c-dev, attributes: {name: "SMBus stub*"}}], containerPath: /dev/i2c, shared: 2, permissions: r}
- {resource: islet.dev/disk, match: [{paths: [/dev/vda]}]}
`

// hardwarePod runs without privileges and not as root.
func hardwarePod(name, resources string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, runAsGroup: 1000, runAsNonRoot: true}
  containers:
  - name: c
    image: %q
    imagePullPolicy: Never
    args: [sleep]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    resources: {limits: {%s}}
`, name, machine.Image, resources)
}

// TestHardware gives real devices of a kernel to pods: they are plugged in, pulled and
// plugged in elsewhere, over a kill of the agent and a reboot.
func TestHardware(t *testing.T) {
	if os.Getenv("ISLET_VM_HARDWARE") == "" {
		t.Skip("it takes a kernel of its own: make test-hardware")
	}
	files := payload(t)
	for name, text := range map[string]string{
		"edge.yaml": edgeConfig, "modem.yaml": hardwarePod("modem", "islet.dev/modem: 1"), "camera.yaml": hardwarePod("camera", "islet.dev/camera: 1, islet.dev/i2c: 1"),
		"disk.yaml": hardwarePod("disk", "islet.dev/disk: 1"),
	} {
		if err := os.WriteFile(filepath.Join(files["files"], name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	step := func(what string) { t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what) }
	v := NewHardware(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Diagnose = "islet devices --all; islet describe modem-edge; dmesg | tail -20; " + diagnose
	v.Boot()
	v.Run(`mkdir -p /root/islet /var/lib/islet/images /etc/islet /etc/kubernetes/manifests && tar xzf /payload/islet.tar.gz --strip-components=1 -C /root/islet
cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/files/cgroupfs.yaml /etc/islet/kubelet.yaml && cp /payload/files/edge.yaml /etc/islet/
cp /payload/files/modem.yaml /payload/files/camera.yaml /payload/files/disk.yaml /etc/kubernetes/manifests/
echo 'ISLET_ARGS="--config=/etc/islet/kubelet.yaml --edge-config=/etc/islet/edge.yaml"' >/etc/default/islet
printf '%s\n' vivid i2c-stub i2c-dev ftdi_sio >/etc/modules-load.d/test.conf; echo 'options i2c-stub chip_addr=0x50' >/etc/modprobe.d/test.conf
systemctl restart systemd-modules-load && /root/islet/install.sh`)
	step("installed")
	running(v, "camera")
	if out, code := v.Try("islet exec camera-edge -- /podtool open /dev/video0"); code != 0 {
		t.Errorf("the camera cannot be opened: %s", out)
	}
	if out, code := v.Try("islet exec camera-edge -- /podtool cat /dev/i2c"); code == 0 || strings.Contains(out, "denied") || strings.Contains(out, "not permitted") {
		t.Errorf("the bus cannot be opened for reading, which fails otherwise without an address: %s", out)
	}
	if out, code := v.Try("islet exec camera-edge -- /podtool open /dev/i2c"); code == 0 || !strings.Contains(out, "not permitted") {
		t.Errorf("the bus can be written to, or it cannot for another reason: %d %s", code, out)
	}
	if out := v.Run("islet devices; islet pods"); !strings.Contains(out, "is mounted on the host at /") || !strings.Contains(out, "UnexpectedAdmissionError") {
		t.Errorf("the disk of the host:\n%s", out)
	}
	step("camera and bus, and no disk")

	v.Plug("usb-serial,chardev=nowhere,serial=MODEM1,bus=usb.0,port=1,id=modem1")
	running(v, "modem")
	opens(v)
	step("a pod whose modem comes late runs")
	before := id(v)
	first := v.Run(modemContainer)

	v.Unplug("modem1")
	v.Await(`islet pods -o json modem-edge | grep -A6 DevicesPlugged | grep '"status": "False"'`)
	if after := v.Run(modemContainer); after != first {
		t.Errorf("the container did not run on: %s, %s", first, after)
	}
	v.Run("kill -9 $(systemctl show -P MainPID islet)")
	step("unplugged, and the agent killed")
	v.Plug("usb-serial,chardev=nowhere2,serial=MODEM2,bus=usb.0,port=1,id=modem2") // takes its number
	v.Plug("usb-serial,chardev=nowhere,serial=MODEM1,bus=usb.0,port=3,id=modem1")
	v.Await(`[ "$(` + modemContainer + `)" != "` + strings.TrimSpace(first) + `" ]`)
	running(v, "modem")
	opens(v)
	if after := id(v); after != before {
		t.Errorf("it has %s, not %s", after, before)
	}
	step("back at another port: restarted with the same device")
	v.Run("islet events modem-edge | grep DeviceUnplugged && islet events modem-edge | grep DevicePlugged")

	v.Reboot()
	running(v, "modem")
	running(v, "camera")
	opens(v)
	if after := id(v); after != before {
		t.Errorf("after a reboot it has %s, not %s", after, before)
	}
	step("rebooted")
}

// modemContainer prints the ID of the container with the modem.
const modemContainer = `islet pods -o json modem-edge | awk -F '"' '$2=="containerID" {print $4; exit}'`

func running(v *VM, pod string) {
	v.t.Helper()
	v.Await("islet pods --no-headers " + pod + `-edge 2>&1 | awk '{print} $2=="1/1" && $3=="Running" {r++} END {exit r!=1}'`)
}

// opens demands that the modem's pod can use it, and that it is the one of that number.
func opens(v *VM) {
	v.t.Helper()
	if out, code := v.Try("islet exec modem-edge -- /podtool open /dev/modem"); code != 0 {
		v.t.Errorf("the modem cannot be opened: %s", out)
	}
	out := v.Run(`node=$(islet devices | awk '$5=="default/modem-edge/c" {print $3}'); serial=$(cat /sys/class/tty/$(basename $node)/device/../../serial)
pid=$(pgrep -x podtool | while read p; do grep -q "$(echo pod$(islet pods -o json modem-edge | awk -F '"' '$2=="uid" {print $4; exit}'))" /proc/$p/cgroup && echo $p; done | head -1)
echo $serial; stat -c %t:%T $node; stat -c %t:%T /proc/$pid/root/dev/modem`)
	if w := strings.Fields(out); len(w) != 3 || w[0] != "MODEM1" || w[1] != w[2] {
		v.t.Errorf("the device on the host and that in the container: %q", out)
	}
}

// id is that of the modem's device.
func id(v *VM) string {
	v.t.Helper()
	return strings.TrimSpace(v.Run(`islet devices | awk '$5=="default/modem-edge/c" {print $2}'`))
}
