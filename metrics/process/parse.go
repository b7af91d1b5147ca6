package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/metrics/kernfile"
)

// A Process contains the figures of one process.
type Process struct {
	PID      int
	InnerPID int // in the innermost PID namespace of the process: the namespace of its container
	Parent   int
	User     uint32 // real user ID on the host
	State    string // one letter, as in ps
	Threads  int
	CPU      time.Duration // user and system time
	Memory   uint64        // resident bytes
	Age      time.Duration
	Command  string // arguments, or the name in brackets if the process has none; at most maxCommand bytes
}

const (
	maxCommand = 1 << 10
	tick       = time.Second / 100 // unit of times in /proc/PID/stat: USER_HZ is 100 on every architecture
)

// Process returns the figures of a process. It returns false if the process has ended.
func (r Reader) Process(pid int) (p Process, ok bool) {
	b := kernfile.Get()
	defer b.Put()
	text, err := b.File(maxText, r.path(pid, "stat"))
	if err != nil || !p.parseStat(text) {
		return p, false
	}
	p.PID, p.InnerPID = pid, pid
	if text, err = b.File(maxText, r.path(pid, "status")); err != nil {
		return p, false
	}
	p.parseStatus(text)
	text, _ = b.File(maxCommand, r.path(pid, "cmdline")) // longer arguments are cut off
	if args := strings.TrimRight(strings.ReplaceAll(string(text[:min(len(text), maxCommand)]), "\x00", " "), " "); args != "" {
		p.Command = args
	}
	return p, true
}

// parseStat parses /proc/PID/stat. The name of the process may contain spaces and brackets.
func (p *Process) parseStat(text []byte) bool {
	begin, end := bytes.IndexByte(text, '('), bytes.LastIndex(text, []byte(") "))
	if begin < 0 || end < begin {
		return false
	}
	p.Command = "[" + string(text[begin+1:end]) + "]"
	fields := strings.Fields(string(text[end+2:]))
	if len(fields) < 22 {
		return false
	}
	number := func(i int) uint64 { // i is the number in proc(5); the fields begin with 3
		n, _ := strconv.ParseUint(fields[i-3], 10, 64)
		return n
	}
	p.State, p.Parent = fields[0], int(number(4))
	p.CPU = time.Duration(number(14)+number(15)) * tick
	p.Threads = int(number(20))
	p.Memory = number(24) * uint64(os.Getpagesize())
	if up, ok := clock.Uptime(); ok {
		p.Age = max(0, up-time.Duration(number(22))*tick)
	}
	return true
}

// parseStatus sets the fields that are only in /proc/PID/status.
func (p *Process) parseStatus(text []byte) {
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		fields := strings.Fields(value)
		switch {
		case len(fields) == 0:
		case name == "Uid":
			n, _ := strconv.ParseUint(fields[0], 10, 32)
			p.User = uint32(n)
		case name == "NSpid":
			if n, err := strconv.Atoi(fields[len(fields)-1]); err == nil {
				p.InnerPID = n
			}
		}
	}
}
