package netns

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// batchSize is the maximum number of requests that the kernel receives in one system call.
	batchSize = 64
	// bufferSize is the size of the receive buffer. The kernel sends one message at a time: a notice about a route, or the result of a
	// request, which begins with the error number. The rest of the result, a copy of the request, may be truncated.
	bufferSize = 1 << 10
	// errnoSize is the size of the error number of a result.
	errnoSize = 4
)

// A Socket is a route netlink socket in a namespace, for requests whose only result is an error. It sends several requests in one system
// call, and receives the results in another. A handle of the library needs four system calls and 64 KiB of stack for each request, and six
// system calls to open. A Socket is not safe for concurrent use.
type Socket struct {
	fd     int
	seq    uint32
	notice func(kind uint16, body []byte)
	counts *Counts
	buffer [bufferSize]byte
}

// A Request is a request of package nl, without a sequence number.
type Request struct {
	*nl.NetlinkRequest
	What   string     // what the request does; the error begins with it
	Accept unix.Errno // an error that counts as success, or 0
}

// Socket opens a socket in the namespace. The caller closes it.
func (n NS) Socket() (s *Socket, err error) {
	err = n.Do(func() error {
		s, err = n.SocketHere(0, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// SocketHere opens a socket in the namespace of the current thread, which must be this namespace. The caller closes it. The socket also
// receives the notices of a multicast group, if the group is not 0, and passes each to the function during Send and Await.
func (n NS) SocketHere(group int, notice func(kind uint16, body []byte)) (*Socket, error) {
	n.counts.addSocket()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err == nil && group != 0 {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (group - 1)})
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("netlink socket in %s: %w", n.Path(), err)
	}
	return &Socket{fd: fd, notice: notice, counts: n.counts}, nil
}

// Close closes the socket.
func (s *Socket) Close() { unix.Close(s.fd) }

// Fd returns the file descriptor, for an ioctl about an interface of the namespace. Any socket can be used for that (Linux 4.6).
func (s *Socket) Fd() int { return s.fd }

// Index returns the index of an interface. The error for a missing interface wraps unix.ENODEV.
func (s *Socket) Index(name string) (int, error) {
	r, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(s.fd, unix.SIOCGIFINDEX, r)
	}
	if err != nil {
		return 0, fmt.Errorf("find interface %s: %w", name, err)
	}
	return int(r.Uint32()), nil
}

// Send sends the requests and returns the errors that the kernel reports. The kernel processes the requests in their order, and continues
// after an error.
func (s *Socket) Send(requests ...Request) error {
	var errs []error
	for len(requests) > 0 {
		n := min(len(requests), batchSize)
		errs = append(errs, s.sendBatch(requests[:n]))
		requests = requests[n:]
	}
	return errors.Join(errs...)
}

// sendBatch sends requests in one system call. The kernel confirms only the last one. It reports the errors of the others, too.
func (s *Socket) sendBatch(batch []Request) error {
	s.counts.addSend(len(batch))
	b := make([]byte, 0, bufferSize)
	first := s.seq + 1
	for i, r := range batch {
		s.seq++
		r.Seq = s.seq
		if i == len(batch)-1 {
			r.Flags |= unix.NLM_F_ACK
		}
		b = append(b, r.Serialize()...)
	}
	err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for err == unix.EINTR {
		err = unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		return fmt.Errorf("send a netlink request: %w", err)
	}
	var errs []error
	for confirmed := false; !confirmed; {
		// The kernel has processed the requests and sent the results before the end of the call.
		seq, result, err := s.receive()
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("receive the result of a netlink request: %w", err))...)
		}
		at := int(seq - first)
		if seq < first || at >= len(batch) {
			continue // a notice
		}
		if r := batch[at]; result != 0 && result != r.Accept {
			errs = append(errs, fmt.Errorf("%s: %w", r.What, result))
		}
		confirmed = seq == s.seq
	}
	return errors.Join(errs...)
}

// Await waits for the next message and passes it to the socket's function if it is a notice. After the timeout, it returns unix.EAGAIN.
func (s *Socket) Await(timeout time.Duration) error {
	left := unix.NsecToTimespec(max(timeout, 0).Nanoseconds())
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, &left, nil)
	if err == unix.EINTR {
		return nil
	}
	if err == nil {
		_, _, err = s.receive()
	}
	return err
}

// receive receives one message without waiting. It returns the sequence number and the result of a request. It passes a notice to the
// socket's function, and then returns 0. If there is no message, the error is unix.EAGAIN.
func (s *Socket) receive() (seq uint32, result unix.Errno, err error) {
	b := s.buffer[:]
	n, from, err := unix.Recvfrom(s.fd, b, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, 0, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 || n < unix.SizeofNlMsghdr {
		return 0, 0, nil // only the kernel's messages count: a pod may send others
	}
	order := nl.NativeEndian()
	kind, body := order.Uint16(b[4:]), b[unix.SizeofNlMsghdr:n]
	if kind == unix.NLMSG_ERROR && len(body) >= errnoSize {
		return order.Uint32(b[8:]), unix.Errno(-int32(order.Uint32(body))), nil
	}
	if s.notice != nil {
		s.notice(kind, body[:min(len(body), max(int(order.Uint32(b))-unix.SizeofNlMsghdr, 0))])
	}
	return 0, 0, nil
}
