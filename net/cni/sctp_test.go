package cni

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestHostPortSCTP sends a real SCTP packet to a host port. It uses raw sockets, because some kernels translate the addresses of SCTP
// packets but have no SCTP sockets.
func TestHostPortSCTP(t *testing.T) {
	families(t, func(t *testing.T, at int, cidr ...string) {
		w := newWorld(t)
		n := w.network(t, cidrs(cidr...))
		web := w.pod(t, n, "web", &api.PortMapping{Protocol: api.Protocol_SCTP, HostPort: 3868, ContainerPort: 1234})
		network := []string{"ip4:132", "ip6:132"}[at]
		var in, out net.PacketConn
		check(t, web.ns.Do(func() (err error) {
			in, err = net.ListenPacket(network, []string{"0.0.0.0", "::"}[at])
			return err
		}))
		defer in.Close()
		check(t, w.outside.Do(func() (err error) {
			out, err = net.ListenPacket(network, []string{"0.0.0.0", "::"}[at])
			return err
		}))
		defer out.Close()
		_, err := out.WriteTo(sctpInit(40000, 3868), &net.IPAddr{IP: net.ParseIP(nodeAddrs[at])})
		check(t, err)
		check(t, in.SetReadDeadline(time.Now().Add(time.Minute)))
		b := make([]byte, 1500)
		size, from, err := in.ReadFrom(b)
		check(t, err)
		if client := []string{"192.0.2.2", "2001:db8::2"}[at]; from.String() != client {
			t.Errorf("from %s, want %s", from, client)
		}
		if size < 12 || binary.BigEndian.Uint16(b) != 40000 || binary.BigEndian.Uint16(b[2:]) != 1234 {
			t.Errorf("got %x, want port 40000 to 1234", b[:size])
		}
	})
}

// sctpInit returns the packet that opens an association (RFC 9260).
func sctpInit(from, to uint16) []byte {
	b := make([]byte, 12+20)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	b[12] = 1 // INIT
	binary.BigEndian.PutUint16(b[14:], 20)
	binary.BigEndian.PutUint32(b[16:], 7)     // tag
	binary.BigEndian.PutUint32(b[20:], 65536) // window
	binary.BigEndian.PutUint16(b[24:], 1)     // streams
	binary.BigEndian.PutUint16(b[26:], 1)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}
