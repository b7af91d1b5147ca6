package portconflict

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Socket is a socket on which a program listens.
type Socket struct {
	Protocol v1.Protocol // TCP, UDP
	Address  netip.AddrPort
}

// maxTable is the maximum number of bytes that are read from a kernel table. It is enough for about a hundred thousand
// sockets.
const maxTable = 16 << 20

// States of a socket in the kernel's tables.
const (
	tcpListen   = "0A"
	udpUnjoined = "07" // bound but not connected
)

// ListSockets returns the listening sockets of the host with the given root directory. A table that the kernel does not
// have, such as a table for IPv6, is treated as empty.
func ListSockets(host fs.FS) ([]Socket, error) {
	var all []Socket
	for _, table := range []struct {
		file, state string
		protocol    v1.Protocol
	}{
		{"tcp", tcpListen, v1.ProtocolTCP}, {"tcp6", tcpListen, v1.ProtocolTCP},
		{"udp", udpUnjoined, v1.ProtocolUDP}, {"udp6", udpUnjoined, v1.ProtocolUDP},
	} {
		f, err := host.Open("proc/net/" + table.file)
		if err != nil {
			continue
		}
		found, err := parseTable(io.LimitReader(f, maxTable), table.state)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read /proc/net/%s: %w", table.file, err)
		}
		for _, a := range found {
			all = append(all, Socket{table.protocol, a})
		}
	}
	return all, nil
}

// parseTable parses a table of sockets. The first line is a header. In each other line, the second word is the local
// address of a socket and the fourth is its state. It skips lines that do not have this format.
func parseTable(r io.Reader, state string) (found []netip.AddrPort, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || f[3] != state {
			continue
		}
		if a, ok := parseAddress(f[1]); ok && a.Port() != 0 {
			found = append(found, a)
		}
	}
	return found, lines.Err()
}

// parseAddress parses an address such as 0100007F:1F90: the IP address as little-endian 32-bit words, and the port.
func parseAddress(s string) (netip.AddrPort, bool) {
	text, number, ok := strings.Cut(s, ":")
	raw, err := hex.DecodeString(text)
	port, perr := strconv.ParseUint(number, 16, 16)
	if !ok || err != nil || perr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), true
}

// FindConflicts returns one sentence for each of the pod's host ports at which one of the sockets
// listens.
func FindConflicts(pod *v1.Pod, sockets []Socket) (out []string) {
	for c, p := range podspec.PortsOnHost(&pod.Spec) {
		protocol := cmp.Or(p.Protocol, v1.ProtocolTCP)
		i := slices.IndexFunc(sockets, func(s Socket) bool { return s.conflictsWith(protocol, p.HostIP, p.HostPort) })
		if i < 0 {
			continue
		}
		text := fmt.Sprintf("host port %d/%s of container %s is taken: a program of the host listens at %s (see which: ss -lnp "+
			"sport = :%d); what is sent there reaches only one of them",
			p.HostPort, protocol, c.Name, sockets[i].Address, p.HostPort)
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// conflictsWith reports whether the socket listens at a host port.
func (s Socket) conflictsWith(protocol v1.Protocol, ip string, port int32) bool {
	if s.Protocol != protocol || int32(s.Address.Port()) != port {
		return false
	}
	want, err := netip.ParseAddr(ip)
	return err != nil || want.IsUnspecified() || s.Address.Addr().IsUnspecified() || s.Address.Addr() == want.Unmap()
}

// Reason is the reason in the event.
const Reason = "HostPortConflict"

// A Hook reports host ports that are in use when the sandbox or a container of a pod is about to start. The pod is
// started nevertheless, as with a kubelet. A pod with hostNetwork is not checked, because its own program listens
// at the port and fails if the port is in use. The command islet status also shows the conflicts of running pods.
type Hook struct {
	Host   fs.FS // root directory of the host
	Events event.Sink
	Log    *slog.Logger
}

// Name implements hook.Named.
func (Hook) Name() string { return "hostport" }

// Sandbox implements hook.SandboxHook.
func (h Hook) Sandbox(_ context.Context, pod *v1.Pod, _ *api.PodSandboxConfig) error {
	if !IsChecked(pod) {
		return nil
	}
	sockets, err := ListSockets(h.Host)
	if err != nil { // the pod is started nevertheless
		h.Log.Debug("cannot find out whether host ports are taken", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "error", err)
		return nil
	}
	for _, text := range FindConflicts(pod, sockets) {
		h.Events.Pod(pod, "", v1.EventTypeWarning, Reason, text)
	}
	return nil
}

// IsChecked reports whether conflicts of a pod are reported: it has host ports and its own network.
func IsChecked(pod *v1.Pod) bool {
	if pod.Spec.HostNetwork {
		return false
	}
	for range podspec.PortsOnHost(&pod.Spec) {
		return true
	}
	return false
}
