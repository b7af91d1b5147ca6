package vm

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"time"
)

// Plug adds an emulated device. The device is described as in the emulator's option -device. The device stays when the machine reboots.
func (v *VM) Plug(device string) {
	v.t.Helper()
	v.sendCommand("device_add " + device)
	v.devices = append(v.devices, "-device", device)
}

// Unplug removes the device with the given ID, which Plug has added.
func (v *VM) Unplug(id string) {
	v.t.Helper()
	v.sendCommand("device_del " + id)
	for i, a := range v.devices {
		if strings.HasSuffix(a, ",id="+id) {
			v.devices = append(v.devices[:i-1:i-1], v.devices[i+1:]...)
			return
		}
	}
	v.t.Fatalf("device %s was not plugged in", id)
}

// sendCommand sends a command without output to the emulator.
func (v *VM) sendCommand(command string) {
	v.t.Helper()
	c, err := net.Dial("unix", filepath.Join(v.dir, "mon"))
	if err != nil {
		v.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	const prompt = "(qemu) "
	until := func() (string, error) {
		var b strings.Builder
		for !strings.HasSuffix(b.String(), prompt) {
			r, err := in.ReadByte()
			if err != nil {
				return b.String(), err
			}
			b.WriteByte(r)
		}
		return b.String(), nil
	}
	_, err = until()
	if err == nil {
		_, err = fmt.Fprintln(c, command)
	}
	out := ""
	if err == nil {
		out, err = until()
	}
	if err != nil || strings.Contains(out, "Error") {
		v.t.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// queryAndQuit returns the emulator's output for a command, and ends the emulator.
func (v *VM) queryAndQuit(command string) ([]byte, error) {
	c, err := net.Dial("unix", filepath.Join(v.dir, "mon"))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprintf(c, "%s\nquit\n", command); err != nil {
		return nil, err
	}
	return io.ReadAll(c)
}
