// Package vm boots whole virtual machines for tests: systemd or OpenRC as init, only cgroup v2, a real kernel, and a
// file system on a block device, all in software emulation. To simulate a power cut, PowerCut kills the emulator.
// The disk then loses some of the data that was not flushed.
//
//	base.sh --> base image --copy--> disk <--NBD-- emulator <--commands-- VM
//	New --> Boot --> Run(command) ... --> PowerCut or Reboot --> Boot ...
//	Record --> Run(command) ... --> State(n): the disk after a power cut at any of the writes
package vm

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

const (
	// bootPatience is the timeout of a boot. A boot takes 10 s on an idle machine, and longer in
	// CI.
	bootPatience = 10 * time.Minute
	// firstWrite is the time after which a machine that has not written to its disk hangs.
	firstWrite = 4 * time.Minute
	// hangTimeout is the maximum time between two lines from the machine. After this time the machine counts as hanging. The guest program
	// sends a line every few seconds while a command runs.
	hangTimeout = 4 * time.Minute
	// defaultMemory is the default memory of a machine in MiB, which is enough for every test.
	defaultMemory = 1536
	// quirks contains kernel arguments. The argument init_on_alloc=0 disables the zeroing of
	// allocated pages in Debian's kernel. A machine with little memory often drops pages of code
	// and reads them again into newly allocated pages. In the emulator, each write to a page that
	// contained code takes a microsecond, so both processors spent minutes on zeroing such pages.
	// The argument no_timer_check disables the check of the timer in the PC kernel. With this
	// check, the kernel panics at its start if the timer does not tick, for example because a busy
	// host does not schedule the emulator in time.
	quirks = "nokaslr init_on_alloc=0 no_timer_check"
)

// OpenRC is the path of the second init of an AMD64 machine, besides systemd.
const OpenRC = "/sbin/openrc-init"

// A VM is a virtual machine. It is not safe for concurrent use, except for PowerCut.
type VM struct {
	Diagnose string // a shell command whose output explains a failed test
	Clock    string // the time of the machine's clock at the next boot, such as 1970-01-01; empty for the present time
	Cable    Cable  // the cable to the network, from the next boot on
	Memory   int    // the memory in MiB, from the next boot on; 0 means defaultMemory
	Cores    int    // the number of processors, from the next boot on; 0 means two
	Init     string // the path of the init, from the next boot on, such as OpenRC; empty for systemd

	t    testing.TB
	arch Arch
	base string // the folder of the base image, from base.sh
	dir  string // this machine's disks, console, sockets
	disk *disk
	qemu *exec.Cmd // nil: off
	ctl  net.Conn
	in   *bufio.Reader
	hung bool // the machine has hung once

	devices []string // the devices, as arguments of the emulator
	plugged int      // number of calls of plugStick
}

// An Arch describes an emulated machine and its processor.
type Arch struct {
	Debian, Go string // the architecture's names in Debian and in Go

	emulator, machine, cpu, console string
}

// These are the emulated machines: a PC, and boards with the processors of a Raspberry Pi 4 and 2,
// all with virtio devices. Without the CPU feature erms, the kernel fills pages word by word (see
// quirks).
var (
	AMD64 = Arch{"amd64", "amd64", "qemu-system-x86_64", "q35", "max,-la57,-erms", "ttyS0"}
	ARM64 = Arch{"arm64", "arm64", "qemu-system-aarch64", "virt", "cortex-a72", "ttyAMA0"}
	ARMHF = Arch{"armhf", "arm", "qemu-system-arm", "virt,highmem=off", "cortex-a7", "ttyAMA0"}
)

// New returns a machine that is off. Its second disk, mounted at /payload, contains the guest
// program and the given files. The keys of payload are names in the machine, the values are paths
// on the test host.
func New(t testing.TB, cache string, payload map[string]string) *VM {
	t.Helper()
	return NewOf(t, AMD64, cache, payload)
}

// NewOf is like New for the given Arch.
func NewOf(t testing.TB, arch Arch, cache string, payload map[string]string) *VM {
	t.Helper()
	return newFromScript(t, arch, "base.sh", cache, payload)
}

// NewHardware is like New, but the machine has a kernel with drivers for all hardware, a
// USB controller, and an empty disk /dev/vdc of 2 GiB.
func NewHardware(t testing.TB, cache string, payload map[string]string) *VM {
	t.Helper()
	v := newFromScript(t, AMD64, "hardware.sh", cache, payload)
	v.devices = []string{"-device", "qemu-xhci,id=usb", "-chardev", "null,id=nowhere", "-chardev", "null,id=nowhere2"}
	v.AddDisk(2048)
	return v
}

// AddDisk adds an empty disk, /dev/vdc, to the machine. The size is in MiB. Call it before the
// first boot.
func (v *VM) AddDisk(mib int) {
	v.t.Helper()
	image := filepath.Join(v.dir, "second.img")
	v.command("truncate", "-s", fmt.Sprintf("%dM", mib), image)
	v.devices = append(v.devices, "-drive", "if=virtio,format=raw,file="+image)
}

// newFromScript returns a machine with the disk images that a script builds.
func newFromScript(t testing.TB, arch Arch, script, cache string, payload map[string]string) *VM {
	t.Helper()
	v := &VM{t: t, arch: arch, dir: t.TempDir()}
	v.base = strings.TrimSpace(v.command("bash", script, filepath.Join(cache, "vm"), arch.Debian))
	files := filepath.Join(v.dir, "payload")
	if err := os.Mkdir(files, 0o755); err != nil {
		t.Fatal(err)
	}
	v.command("env", "CGO_ENABLED=0", "GOARCH="+arch.Go, "GOARM=7", "go", "build", "-trimpath", "-o", filepath.Join(files, "guest"),
		"./guest")
	for name, path := range payload {
		v.command("cp", "-r", path, filepath.Join(files, name))
	}
	v.command("mke2fs", "-q", "-t", "ext4", "-d", files, filepath.Join(v.dir, "payload.img"), "512M")
	v.command("cp", "--sparse=always", filepath.Join(v.base, "base.img"), filepath.Join(v.dir, "disk.img"))
	var err error
	if v.disk, err = newDisk(filepath.Join(v.dir, "disk.img"), filepath.Join(v.dir, "nbd")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer v.disk.close()
		if t.Failed() && v.qemu != nil && v.Diagnose != "" {
			t.Logf("%s", first(v.answer(v.Diagnose)))
		}
		v.PowerCut()
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(v.dir, "console"))
			t.Logf("end of the console:\n%s", b[max(0, len(b)-4096):])
		}
	})
	return v
}

func (v *VM) command(name string, args ...string) string {
	v.t.Helper()
	c := exec.Command(name, args...)
	c.Dir = filepath.Join(machine.Root(v.t), "test", "vm")
	c.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	var told strings.Builder // standard error is not part of the result; it may contain a warning about the locale
	c.Stderr = &told
	out, err := c.Output()
	if err != nil {
		v.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &told)
	}
	return string(out)
}

// Boot turns the machine on, and waits until its guest program is ready.
func (v *VM) Boot() {
	v.t.Helper()
	for hangs := 0; !v.start(); hangs++ {
		if hangs == 2 {
			v.t.Fatalf("the machine hung in %d boots, one after the other", hangs+1)
		}
		v.turnOffHung()
	}
}

// start turns the machine on, and waits until its guest program is ready. It returns false if the machine hangs before its first write to
// the disk: then the emulator hangs, and nothing that the machine does later has happened yet.
func (v *VM) start() (ready bool) {
	v.t.Helper()
	sock := filepath.Join(v.dir, "ctl")
	os.Remove(sock)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		v.t.Fatal(err)
	}
	defer l.Close()
	drive := func(file string) string { return "if=virtio,format=raw,file=" + file }
	clock := v.Clock
	if clock == "" {
		clock = "utc"
	}
	memory := v.Memory
	if memory == 0 {
		memory = defaultMemory
	}
	kernel := "console=" + v.arch.console + " root=/dev/vda rw panic=1 quiet " + quirks
	if v.Init != "" {
		kernel += " init=" + v.Init
	}
	args := []string{v.arch.emulator, "-rtc", "base=" + clock, "-machine", v.arch.machine, "-accel", "tcg,thread=multi", "-cpu",
		v.arch.cpu, "-smp", fmt.Sprint(cmp.Or(v.Cores, 2)), "-m", fmt.Sprint(memory),
		"-nographic", "-nic", cmp.Or(v.Cable.nic, "none"), "-no-reboot",
		"-drive", drive("nbd:unix:" + filepath.Join(v.dir, "nbd")), "-drive", drive(filepath.Join(v.dir, "payload.img")) + ",readonly=on",
		"-device", "virtio-serial", "-chardev", "socket,id=ctl,path=" + sock, "-device", "virtserialport,chardev=ctl,name=ctl",
		"-chardev", "file,append=on,id=told,path=" + filepath.Join(v.dir, "told"), "-device", "virtserialport,chardev=told,name=told",
		"-kernel", filepath.Join(v.base, "vmlinuz"), "-initrd", filepath.Join(v.base, "initrd.img"),
		"-append", kernel, "-serial", "file:" + filepath.Join(v.dir, "console"), "-monitor",
		"unix:" + filepath.Join(v.dir, "mon") + ",server=on,wait=off"}
	args = append(args, v.devices...)
	args = append(v.Cable.enterCommand(), args...)
	qemu := exec.Command(args[0], args[1:]...)
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var told strings.Builder // read after the emulator has ended
	qemu.Stderr = &told
	if err := qemu.Start(); err != nil {
		v.t.Fatalf("start the emulator: %v", err)
	}
	v.disk.serveNext()
	writes := v.disk.countWrites()
	v.qemu = qemu
	deadline := time.Now().Add(bootPatience)
	l.SetDeadline(deadline)
	if v.ctl, err = l.Accept(); err != nil {
		v.PowerCut()
		v.t.Fatalf("the emulator did not connect: %v\n%s", err, &told)
	}
	v.in = bufio.NewReader(v.ctl)
	v.ctl.SetReadDeadline(time.Now().Add(firstWrite))
	line, err := v.in.ReadString('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if v.disk.countWrites() == writes {
			return false
		}
		v.ctl.SetReadDeadline(deadline)
		line, err = v.in.ReadString('\n')
	}
	if err != nil || line != "ready\n" {
		v.t.Fatalf("the machine is not ready after its boot: %q, %v", line, err)
	}
	return true
}

// PowerCut kills the emulator. It has no effect on a machine that is off.
func (v *VM) PowerCut() {
	if v.qemu == nil {
		return
	}
	v.qemu.Process.Kill() // an error means that the emulator has already ended
	v.powerOff()
}

// PowerCutAt cuts the power at the n-th write to the disk from now on. The write is not executed. It returns a function that waits for
// this power cut, and reports whether it came within the given time. If it did not come, the function cuts the power.
func (v *VM) PowerCutAt(n int) (wait func(time.Duration) bool) {
	failed := v.disk.cutAt(n)
	return func(limit time.Duration) (came bool) {
		v.t.Helper()
		select {
		case <-failed:
			came = true
		case <-time.After(limit):
		}
		v.PowerCut()
		return came
	}
}

// Writes returns the number of writes to the disk since the test began.
func (v *VM) Writes() int { return v.disk.countWrites() }

// ToldData returns all data that the machine has written to /dev/virtio-ports/told. Power cuts do not
// affect the data, because it is stored outside the machine.
func (v *VM) ToldData() []byte {
	v.t.Helper()
	b, err := os.ReadFile(filepath.Join(v.dir, "told"))
	if err != nil {
		v.t.Fatal(err)
	}
	return b
}

// Reboot shuts the machine down properly and boots it again.
func (v *VM) Reboot() {
	v.t.Helper()
	qemu := v.qemu
	late := time.AfterFunc(bootPatience, func() { qemu.Process.Kill() })
	// The machine may shut down before it responds. The emulator then ends too, because of its argument -no-reboot.
	v.answer("if [ -d /run/openrc ]; then openrc-shutdown -r now; else systemctl reboot; fi")
	v.powerOff()
	if !late.Stop() {
		v.t.Errorf("the machine did not shut down within %v", bootPatience)
	}
	v.Boot()
}

func (v *VM) powerOff() {
	v.t.Helper()
	v.qemu.Wait() // an error is expected if the emulator was killed
	if v.ctl != nil {
		v.ctl.Close()
	}
	v.qemu, v.ctl = nil, nil
	if lost, err := v.disk.cutPower(); err != nil {
		v.t.Errorf("the disk: %v", err)
	} else if lost > 0 {
		v.t.Logf("the disk lost %d sectors that were not flushed", lost)
	}
}

// Try runs a shell command as root and returns its output and exit code.
func (v *VM) Try(command string) (string, int) {
	v.t.Helper()
	a, err := v.answer(command)
	if err != nil {
		v.t.Fatalf("%s: %v", command, err)
	}
	return a.Output, a.Code
}

type answer struct {
	Output string
	Code   int
}

func (v *VM) answer(command string) (a answer, err error) {
	v.ctl.SetDeadline(time.Now().Add(hangTimeout))
	if _, err := fmt.Fprintln(v.ctl, base64.StdEncoding.EncodeToString([]byte(command))); err != nil {
		return a, err
	}
	for {
		v.ctl.SetDeadline(time.Now().Add(hangTimeout))
		line, err := v.in.ReadBytes('\n')
		if err != nil {
			return a, err
		}
		if len(line) > 1 { // otherwise the command is still running
			return a, json.Unmarshal(line, &a)
		}
	}
}

func first(a answer, err error) string {
	if err != nil {
		return err.Error()
	}
	return a.Output
}

// Run is like Try, but fails the test if the command fails.
func (v *VM) Run(command string) string {
	v.t.Helper()
	out, code := v.Try(command)
	if code != 0 {
		v.t.Fatalf("%s: exit code %d\n%s", command, code, out)
	}
	return out
}

// Await runs a shell command until it succeeds.
func (v *VM) Await(command string) string {
	v.t.Helper()
	deadline := time.Now().Add(bootPatience)
	for {
		// The machine itself pauses after a failure, so the pause needs no command of its own.
		a, err := v.answer(command + " || { sleep 0.2; false; }")
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !v.hung:
			v.hung = true
			v.restartHung()
			deadline = time.Now().Add(bootPatience)
		case err != nil:
			v.t.Fatalf("%s: %v", command, err)
		case a.Code == 0:
			return a.Output
		case time.Now().After(deadline):
			v.t.Fatalf("waited in vain for: %s\n%s", command, a.Output)
		}
	}
}

// restartHung turns off a machine that hangs, and boots it again. The guest program limits the time
// of every command, so the kernel or the emulator hangs. For islet, turning off the machine is a power cut.
func (v *VM) restartHung() {
	v.t.Helper()
	v.turnOffHung()
	v.Boot()
}

// turnOffHung turns off a machine that hangs, and logs where. This happened once in fifty boots, with both processors spinning.
func (v *VM) turnOffHung() {
	v.t.Helper()
	registers, err := v.queryAndQuit("info registers -a")
	v.t.Logf("the machine hangs: %v\n%s", err, registers)
	v.PowerCut()
}
