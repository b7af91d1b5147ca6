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

// edgeConfig makes a USB serial adapter, a camera and an I2C bus available to pods. The disk of the host must not be available.
const edgeConfig = `apiVersion: islet.dev/v1alpha1
kind: EdgeConfiguration
devices:
- {resource: islet.dev/modem, match: [{usb: {vendor: "0403", serial: "MODEM*"}, subsystem: tty}], containerPath: /dev/modem, group: 1234}
- {resource: islet.dev/camera, match: [{driver: vivid, subsystem: video4linux}], unit: all}
- {resource: islet.dev/i2c, match: [{subsystem: i2c-dev, attributes: {name: "SMBus stub*"}}], containerPath: /dev/i2c, shared: 2, group: 1234, permissions: r}
- {resource: islet.dev/disk, match: [{paths: [/dev/vda]}]}
`

// hardwarePod returns an unprivileged pod with a user other than root.
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

// requireHardware skips the test if the emulated machine has no such devices. Call it before slow preparations.
func requireHardware(t *testing.T) {
	t.Helper()
	if os.Getenv("ISLET_VM_HARDWARE") == "" {
		t.Skip("it takes a kernel with more drivers: make test-hardware or test-vm")
	}
}

// hardware boots a machine whose kernel has drivers for all devices. islet is unpacked and configured, but not installed. The map contains
// additional files. The returned function logs a step with its time.
func hardware(t *testing.T, diagnoses string, texts map[string]string) (v *VM, step func(what string)) {
	t.Helper()
	requireHardware(t)
	files := payload(t)
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(files["files"], name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	v = NewHardware(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Diagnose = diagnoses + "; " + diagnose
	v.Boot()
	v.Run(unpack)
	v.Run(`mkdir -p /var/lib/islet/images /etc/kubernetes/manifests
cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/files/cgroupfs.yaml /etc/islet/kubelet.yaml && echo ISLET_ARGS=--config=/etc/islet/kubelet.yaml >/etc/default/islet`)
	return v, func(what string) { t.Logf("%4.0fs %s", time.Since(begin).Seconds(), what) }
}

// TestHardware checks that pods can use real devices of a kernel. The devices are plugged in, unplugged and plugged in at another port,
// also while the agent is killed and before a reboot.
func TestHardware(t *testing.T) {
	v, step := hardware(t, "islet devices --all; islet describe modem-edge; dmesg | tail -20", map[string]string{
		"edge.yaml": edgeConfig, "modem.yaml": hardwarePod("modem", "islet.dev/modem: 1"), "camera.yaml": hardwarePod("camera", "islet.dev/camera: 1, islet.dev/i2c: 1"),
		"disk.yaml": hardwarePod("disk", "islet.dev/disk: 1"),
	})
	v.Run(`cp /payload/files/edge.yaml /etc/islet/
cp /payload/files/modem.yaml /payload/files/camera.yaml /payload/files/disk.yaml /payload/files/p0.yaml /etc/kubernetes/manifests/
echo 'ISLET_ARGS="--config=/etc/islet/kubelet.yaml --edge-config=/etc/islet/edge.yaml"' >/etc/default/islet
printf '%s\n' i2c-i801 vivid i2c-stub i2c-dev ftdi_sio >/etc/modules-load.d/test.conf; echo 'options i2c-stub chip_addr=0x50' >/etc/modprobe.d/test.conf
systemctl restart systemd-modules-load && /root/islet/install.sh`)
	step("installed")
	running(v, "camera")
	if out, code := v.Try("islet exec camera-edge -- /podtool open /dev/video0"); code != 0 {
		t.Errorf("the camera cannot be opened: %s", out)
	}
	if out, code := v.Try("islet exec camera-edge -- /podtool cat /dev/i2c"); code == 0 || strings.Contains(out, "denied") ||
		strings.Contains(out, "not permitted") {
		t.Errorf("the open of the bus for reading failed: %s", out)
	}
	if out, code := v.Try("islet exec camera-edge -- /podtool open /dev/i2c"); code == 0 || !strings.Contains(out, "not permitted") {
		t.Errorf("the open of the bus for writing succeeded or failed with another error: %d %s", code, out)
	}
	if out := v.Run("islet devices; islet pods"); !strings.Contains(out, "is mounted on the host at /") ||
		!strings.Contains(out, "UnexpectedAdmissionError") {
		t.Errorf("the disk of the host:\n%s", out)
	}
	notGranted(v)
	// The agent must have exactly one netlink socket for uevents (protocol 15), because it must not poll for devices.
	v.Run(`awk -v pid=$(systemctl show -P MainPID islet) '$2==15 && $3==pid {n++} END {exit n!=1}' /proc/net/netlink`)
	step("camera and bus, and no disk")

	// With always-plugged the emulator does not wait for a listener on the other end.
	const modem1 = "usb-serial,always-plugged=on,chardev=nowhere,serial=MODEM1,bus=usb.0,"
	v.Plug(modem1 + "port=1,id=modem1")
	running(v, "modem")
	opens(v)
	step("a pod whose modem comes late runs")
	before := id(v)
	first := v.Run(modemContainer)
	unplugged := func() {
		t.Helper()
		v.Unplug("modem1")
		v.Await(`islet pods -o json modem-edge | grep -A6 DevicesPlugged | grep '"status": "False"'`)
		if after := v.Run(modemContainer); after != first {
			t.Errorf("the container did not continue: %s, %s", first, after)
		}
	}
	restarted := func() {
		t.Helper()
		v.Await(`now=$(` + modemContainer + `) && [ -n "$now" ] && [ "$now" != "` + strings.TrimSpace(first) + `" ]`)
		running(v, "modem")
		opens(v)
		if after := id(v); after != before {
			t.Errorf("the pod's device is %s, not %s", after, before)
		}
		first = v.Run(modemContainer)
	}

	unplugged()
	v.Await("islet events modem-edge | grep DeviceUnplugged")
	v.Plug(modem1 + "port=1,id=modem1")
	restarted()
	v.Await("islet events modem-edge | grep DevicePlugged")
	step("unplugged, and back: restarted with the same device")

	unplugged()
	v.Run("kill -9 $(systemctl show -P MainPID islet)")
	step("unplugged, and the agent killed")
	v.Plug("usb-serial,always-plugged=on,chardev=nowhere2,serial=MODEM2,bus=usb.0,port=1,id=modem2") // the device gets its former number
	v.Plug(modem1 + "port=3,id=modem1")
	restarted()
	step("back at another port: restarted with the same device")

	v.Reboot()
	running(v, "modem")
	running(v, "camera")
	opens(v)
	if after := id(v); after != before {
		t.Errorf("after a reboot the pod's device is %s, not %s", after, before)
	}
	step("rebooted")
}

// notGranted checks that root with CAP_MKNOD in a container can create the device nodes of the camera, the bus and the disk, but can open
// none of them. The host can open all three. The error must be EPERM, the error of the cgroup's BPF program.
func notGranted(v *VM) {
	v.t.Helper()
	running(v, "p0")
	for _, d := range []struct{ kind, node string }{{"c", "/dev/video0"}, {"c", "/dev/i2c-0"}, {"b", "/dev/vda"}} {
		v.Run("/payload/podtool open " + d.node)
		v.Run("islet exec p0-edge -- /podtool node /stolen " + d.kind + ` $(stat -c '%Hr %Lr' ` + d.node + ")")
		if out, code := v.Try("islet exec p0-edge -- /podtool open /stolen"); code == 0 ||
			!strings.Contains(out, "/stolen: operation not permitted") {
			v.t.Errorf("open of %s, which is not assigned: %d %s", d.node, code, out)
		}
		v.Run("islet exec p0-edge -- /podtool rm /stolen")
	}
	v.Run("islet exec p0-edge -- /podtool open /dev/null")
}

// modemContainer is a command that prints the ID of the running container with the modem. The status also contains the ID of the former
// container.
const modemContainer = `islet pods -o json modem-edge | awk -F '"' '$2=="containerID" {id=$4} END {print id}'`

func running(v *VM, pod string) {
	v.t.Helper()
	v.Await("islet pods --no-headers " + pod + `-edge 2>&1 | awk '{print} $2=="1/1" && $3=="Running" {r++} END {exit r!=1}'`)
}

// opens checks that the modem's pod can open the modem, and that the modem is the device with the serial number MODEM1.
func opens(v *VM) {
	v.t.Helper()
	if out, code := v.Try("islet exec modem-edge -- /podtool open /dev/modem"); code != 0 {
		v.t.Errorf("the modem cannot be opened: %s", out)
	}
	out := v.Run(`node=$(islet devices | awk '$5=="default/modem-edge/c" {print $3}'); serial=$(cat /sys/class/tty/$(basename $node)/device/../../serial)
pid=$(pgrep -x podtool | while read p; do grep -q "$(echo pod$(islet pods -o json modem-edge | awk -F '"' '$2=="uid" {print $4; exit}'))" /proc/$p/cgroup && echo $p; done | head -1)
echo $serial; stat -c %t:%T $node; stat -c %t:%T /proc/$pid/root/dev/modem`)
	if w := strings.Fields(out); len(w) != 3 || w[0] != "MODEM1" || w[1] != w[2] {
		v.t.Errorf("the serial number and the device numbers on the host and in the container are %q", out)
	}
}

// id returns the ID of the modem's device.
func id(v *VM) string {
	v.t.Helper()
	return strings.TrimSpace(v.Run(`islet devices | awk '$5=="default/modem-edge/c" {print $2}'`))
}
