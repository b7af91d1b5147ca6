package vm

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
)

// Write writes a file.
func (v *VM) Write(path, content string) {
	v.t.Helper()
	v.Run(fmt.Sprintf("mkdir -p %s && echo %s | base64 -d >%s", filepath.Dir(path), base64.StdEncoding.EncodeToString([]byte(content)), path))
}

// The machine's address in the network that it reaches, and that of its gateway: the
// emulator's own.
const (
	Address = "10.0.2.15"
	router  = "10.0.2.2"
)

// Online gives the machine its address. It is to be called after each boot.
func (v *VM) Online() {
	v.t.Helper()
	v.Run("modprobe virtio_net; udevadm settle; dev=$(basename $(ls -d /sys/class/net/*/device | head -1 | xargs dirname)) && ip addr add " + Address + "/24 dev $dev && ip link set $dev up && ip route add default via " + router)
}
