package process

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// Links detects in which network namespaces there was traffic. It reads the counters of the veth ends on the host. This needs one request
// to the kernel for all namespaces, instead of reading a file for each namespace.
//
//	pid --RTM_GETNSID--> namespace --RTM_GETLINK--> the host ends of its veths      once
//	RTM_GETSTATS --> counters of all links of the host                             each time
//
// Links is used for one sample only. It is not safe for concurrent use. See https://docs.kernel.org/userspace-api/netlink/intro.html.
type Links struct {
	counted map[int32]Counters // by the index of the link on the host; nil before the first reading
	ends    map[int32][]int32  // the veth ends on the host, by the ID of the other end's namespace; nil before the first reading
}

// Counters are the traffic counters of a link.
type Counters [8]uint64 // packets, bytes, errors and drops, each received and sent

// HostEnds describes the veths that connect one network namespace to the host. It contains the indexes of their ends on the host, and the
// counters of these ends at one time.
type HostEnds struct {
	ends    []int32
	counted []Counters
}

const (
	netlinkTimeout = 2      // seconds
	skipStats      = 1 << 3 // RTEXT_FILTER_SKIP_STATS
	attributeType  = 0x3fff // without flags
)

// readCounters reads the current counters, unless an earlier call has read them. After an error there are no counters, so IsSame returns
// false.
func (l *Links) readCounters() {
	if l.counted != nil {
		return
	}
	l.counted = map[int32]Counters{}
	request := make([]byte, 12) // the fields of if_stats_msg: family, pad, ifindex, filter
	binary.NativeEndian.PutUint32(request[8:], 1<<(unix.IFLA_STATS_LINK_64-1))
	err := dumpRequest(unix.RTM_GETSTATS, request, func(body []byte) {
		if len(body) < 12 {
			return
		}
		index := int32(binary.NativeEndian.Uint32(body[4:]))
		for kind, data := range eachAttribute(body[12:]) {
			if kind == unix.IFLA_STATS_LINK_64 && len(data) >= 64 {
				var c Counters
				for i := range c {
					c[i] = binary.NativeEndian.Uint64(data[8*i:])
				}
				l.counted[index] = c
			}
		}
	})
	if err != nil {
		clear(l.counted)
	}
}

// HostEnds returns the HostEnds for the network namespace of a process. The caller passes the previous result, or an empty one, and the
// number of interfaces in the namespace except loopback. If one of these interfaces is not a veth with the other end on the host, the
// result is empty.
func (l *Links) HostEnds(before HostEnds, pid, interfaces int) (w HostEnds) {
	if interfaces == 0 {
		return w
	}
	l.readCounters()
	w = l.withCounters(before.ends)
	if len(w.ends) == interfaces {
		return w
	}
	if l.ends == nil {
		l.ends = listHostEnds()
	}
	if id, ok := namespaceID(pid); ok && len(l.ends[id]) == interfaces {
		return l.withCounters(l.ends[id])
	}
	return HostEnds{}
}

// withCounters returns the HostEnds for the given links, with their current counters. If one of the links no longer exists, the result is
// empty.
func (l *Links) withCounters(ends []int32) HostEnds {
	w := HostEnds{ends: ends}
	for _, index := range ends {
		c, ok := l.counted[index]
		if !ok {
			return HostEnds{}
		}
		w.counted = append(w.counted, c)
	}
	return w
}

// IsSame reports whether there was no traffic: whether the counters are the same as in the given HostEnds.
func (l *Links) IsSame(w HostEnds) bool {
	if len(w.ends) == 0 {
		return false
	}
	l.readCounters()
	for i, index := range w.ends {
		if c, ok := l.counted[index]; !ok || c != w.counted[i] {
			return false
		}
	}
	return true
}

// listHostEnds returns the indexes of the veths in the host's namespace. The key is the ID of the namespace that contains the other end.
func listHostEnds() map[int32][]int32 {
	out := map[int32][]int32{}
	request := make([]byte, unix.SizeofIfInfomsg+8) // includes a mask that excludes the counters
	binary.NativeEndian.PutUint16(request[unix.SizeofIfInfomsg:], 8)
	binary.NativeEndian.PutUint16(request[unix.SizeofIfInfomsg+2:], unix.IFLA_EXT_MASK)
	binary.NativeEndian.PutUint32(request[unix.SizeofIfInfomsg+4:], skipStats)
	_ = dumpRequest(unix.RTM_GETLINK, request, func(body []byte) { // after an error there are no veths
		if len(body) < unix.SizeofIfInfomsg {
			return
		}
		index, namespace, veth := int32(binary.NativeEndian.Uint32(body[4:])), int32(-1), false
		for kind, data := range eachAttribute(body[unix.SizeofIfInfomsg:]) {
			switch {
			case kind == unix.IFLA_LINK_NETNSID && len(data) >= 4:
				namespace = int32(binary.NativeEndian.Uint32(data))
			case kind == unix.IFLA_LINKINFO:
				for kind, name := range eachAttribute(data) {
					veth = veth || kind == unix.IFLA_INFO_KIND && string(name) == "veth\x00"
				}
			}
		}
		if veth && namespace >= 0 {
			out[namespace] = append(out[namespace], index)
		}
	})
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}

// namespaceID returns the ID by which the host's network namespace refers to the network namespace of a process.
func namespaceID(pid int) (id int32, ok bool) {
	const rtgenmsg = 4 // padded
	request := make([]byte, rtgenmsg+8)
	binary.NativeEndian.PutUint16(request[rtgenmsg:], 8)
	binary.NativeEndian.PutUint16(request[rtgenmsg+2:], unix.NETNSA_PID)
	binary.NativeEndian.PutUint32(request[rtgenmsg+4:], uint32(pid))
	err := sendRequest(unix.RTM_GETNSID, 0, request, func(body []byte) {
		if len(body) < rtgenmsg {
			return
		}
		for kind, data := range eachAttribute(body[rtgenmsg:]) {
			if kind == unix.NETNSA_NSID && len(data) >= 4 {
				id = int32(binary.NativeEndian.Uint32(data))
				ok = id >= 0
			}
		}
	})
	return id, ok && err == nil
}

func dumpRequest(kind uint16, body []byte, handle func(body []byte)) error {
	return sendRequest(kind, unix.NLM_F_DUMP, body, handle)
}

// sendRequest sends a netlink request, and passes the body of each reply to the caller's function.
func sendRequest(kind, flags uint16, body []byte, handle func(body []byte)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: netlinkTimeout}); err != nil {
		return err
	}
	request := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(body))
	binary.NativeEndian.PutUint32(request, uint32(unix.SizeofNlMsghdr+len(body)))
	binary.NativeEndian.PutUint16(request[4:], kind)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|flags)
	if err := unix.Sendto(fd, append(request, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := kernfile.Get()
	defer b.Put()
	buffer := b.Memory() // the kernel sends no more than the buffer can contain
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for b := buffer[:n]; len(b) >= unix.SizeofNlMsghdr; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr || size > len(b) {
				return unix.EBADMSG
			}
			flagged := binary.NativeEndian.Uint16(b[6:])
			switch got := b[unix.SizeofNlMsghdr:size]; {
			case flagged&unix.NLM_F_DUMP_INTR != 0:
				return unix.EINTR // links were added or removed during the dump
			case binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_DONE:
				return nil
			case binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR:
				if len(got) < 4 {
					return unix.EBADMSG
				}
				return unix.Errno(-int32(binary.NativeEndian.Uint32(got)))
			default:
				handle(got)
			}
			b = b[min(len(b), (size+3)&^3):]
		}
		if flags&unix.NLM_F_DUMP == 0 {
			return nil
		}
	}
}

// eachAttribute iterates over the complete attributes of a message.
func eachAttribute(b []byte) func(yield func(kind uint16, data []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			size := int(binary.NativeEndian.Uint16(b))
			if size < 4 || size > len(b) || !yield(binary.NativeEndian.Uint16(b[2:])&attributeType, b[4:size]) {
				return
			}
			b = b[min(len(b), (size+3)&^3):]
		}
	}
}
