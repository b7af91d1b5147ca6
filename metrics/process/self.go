package process

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Own are figures of this process. What could not be read is zero.
type Own struct {
	CPU               time.Duration
	Started           time.Time
	Virtual, Resident uint64 // bytes
	Files             uint64 // open descriptors
	MaxFiles          uint64
	MaxVirtual        uint64 // bytes; 1<<64 - 1: any
	Received, Sent    uint64 // bytes of IP, in its network namespace
}

// Owns reads Own. Its method may be called at once.
type Owns struct {
	mu   sync.Mutex
	boot time.Time // of the machine, by the clock
}

// userTick is the unit of times in /proc/PID/stat, whatever the kernel's own is.
const userTick = 10 * time.Millisecond

// Now reads the figures of now.
// https://docs.kernel.org/filesystems/proc.html (1.1)
func (o *Owns) Now() (f Own) {
	user, system := Used()
	f.CPU = user + system
	b := buffers.Get().(*[16 << 10]byte)
	defer buffers.Put(b)
	f.stat(readInto(b, "/proc/self/stat"), o.booted())
	f.network(readInto(b, "/proc/self/net/netstat"))
	f.Files = descriptors()
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		f.MaxFiles = l.Cur
	}
	if unix.Getrlimit(unix.RLIMIT_AS, &l) == nil {
		f.MaxVirtual = l.Cur
	}
	return f
}

// booted is when the machine was, as the clock has it now: the same as before, unless the clock
// was set since.
func (o *Owns) booted() time.Time {
	var up unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return time.Time{}
	}
	now := time.Now().Add(-time.Duration(up.Nano())).Round(0)
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.boot).Abs() > time.Second {
		o.boot = now.Truncate(userTick)
	}
	return o.boot
}

// stat takes fields of /proc/PID/stat, of which the second is a name in parentheses that may
// have any character.
func (f *Own) stat(text []byte, boot time.Time) {
	const third, vsize = 3, 23
	field := third
	for v := range bytes.FieldsSeq(text[bytes.LastIndexByte(text, ')')+1:]) {
		n, _ := strconv.ParseUint(view(v), 10, 64) // others are no numbers
		switch field {
		case vsize - 1:
			if !boot.IsZero() {
				f.Started = boot.Add(time.Duration(min(n, 1<<50)) * userTick)
			}
		case vsize:
			f.Virtual = n
		case vsize + 1:
			f.Resident = n * uint64(os.Getpagesize())
		}
		field++
	}
}

// network takes what /proc/net/netstat says of IP: a line of names, then one of numbers.
func (f *Own) network(text []byte) {
	var names []byte
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("IpExt: "))
		switch {
		case !ok:
		case names == nil:
			names = rest
		default:
			f.Received, f.Sent = nth(rest, index(names, "InOctets")), nth(rest, index(names, "OutOctets"))
			return
		}
	}
}

// index is which of the words in a line is one; -1: none.
func index(line []byte, word string) int {
	i := 0
	for w := range bytes.FieldsSeq(line) {
		if string(w) == word {
			return i
		}
		i++
	}
	return -1
}

func nth(line []byte, at int) (n uint64) {
	i := 0
	for w := range bytes.FieldsSeq(line) {
		if i == at {
			n, _ = strconv.ParseUint(view(w), 10, 64)
			break
		}
		i++
	}
	return n
}

// descriptors is how many files this process has open.
func descriptors() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/fd", &st) == nil && st.Size > 0 { // since Linux 6.2
		return uint64(st.Size)
	}
	return Reader{}.Open([]int{os.Getpid()}).Descriptors
}
