package process

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// Self contains figures of this process. A figure that could not be read is zero.
type Self struct {
	CPU               time.Duration
	Virtual, Resident uint64 // bytes
	Files             uint64 // open descriptors
	MaxFiles          uint64
	MaxVirtual        uint64 // bytes; 1<<64 - 1 means no limit
	Received, Sent    uint64 // bytes of the IP packets in the network namespace of the process
}

// ReadSelf reads the figures of this process. The start time is not included, because the kernel does not change it when the agent replaces
// its program by exec. See https://docs.kernel.org/filesystems/proc.html (1.1).
func ReadSelf() (s Self) {
	user, system := SelfCPUTime()
	s.CPU = user + system
	b := kernfile.Get()
	defer b.Put()
	stat, _ := b.File(maxText, "/proc/self/stat") // after an error the text is empty
	s.parseStat(stat)
	netstat, _ := b.File(maxText, "/proc/self/net/netstat")
	s.parseNetstat(netstat)
	s.Files = countOpenFiles()
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		s.MaxFiles = l.Cur
	}
	if unix.Getrlimit(unix.RLIMIT_AS, &l) == nil {
		s.MaxVirtual = l.Cur
	}
	return s
}

// These are numbers of fields in /proc/PID/stat, as in proc(5).
const (
	fieldName  = 2 // in parentheses; may contain any character
	fieldVsize = 23
	fieldRSS   = 24
)

// parseStat parses the memory fields of /proc/PID/stat.
func (s *Self) parseStat(text []byte) {
	field := fieldName
	for v := range bytes.FieldsSeq(text[bytes.LastIndexByte(text, ')')+1:]) {
		field++
		switch field {
		case fieldVsize:
			s.Virtual, _ = strconv.ParseUint(kernfile.StringView(v), 10, 64) // always a number
		case fieldRSS:
			pages, _ := strconv.ParseUint(kernfile.StringView(v), 10, 64)
			s.Resident = pages * uint64(os.Getpagesize())
			return
		}
	}
}

// parseNetstat parses the IP counters of /proc/net/netstat. A line of names precedes each line of
// numbers.
func (s *Self) parseNetstat(text []byte) {
	var names []byte
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("IpExt: "))
		switch {
		case !ok:
		case names == nil:
			names = rest
		default:
			s.Received, s.Sent = nthNumber(rest, wordIndex(names, "InOctets")), nthNumber(rest, wordIndex(names, "OutOctets"))
			return
		}
	}
}

// wordIndex returns the position of a word among the words of a line, or -1 if the line does not contain the
// word.
func wordIndex(line []byte, word string) int {
	i := 0
	for w := range bytes.FieldsSeq(line) {
		if string(w) == word {
			return i
		}
		i++
	}
	return -1
}

func nthNumber(line []byte, at int) (n uint64) {
	i := 0
	for w := range bytes.FieldsSeq(line) {
		if i == at {
			n, _ = strconv.ParseUint(kernfile.StringView(w), 10, 64)
			break
		}
		i++
	}
	return n
}

// countOpenFiles returns the number of open files of this process.
func countOpenFiles() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/fd", &st) == nil && st.Size > 0 { // since Linux 6.2, the size is the number of open files
		return uint64(st.Size)
	}
	return Reader{}.Open([]int{os.Getpid()}).Descriptors
}
