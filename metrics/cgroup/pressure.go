package cgroup

import (
	"bytes"
	"strconv"
	"time"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// Pressures contains the pressure stall information of a cgroup. A field is nil if the kernel does not
// provide it. See https://docs.kernel.org/accounting/psi.html.
type Pressures struct{ CPU, Memory, IO *Pressure }

// A Pressure describes how long processes waited for a resource. The field Some describes the times at which at least one process waited.
// The field Full describes the times at which all processes waited.
type Pressure struct{ Some, Full Stall }

// A Stall contains the total waiting time, and its percentage of the last 10, 60 and 300 seconds.
type Stall struct {
	Total                time.Duration
	Avg10, Avg60, Avg300 float64
}

// readPressure reads a pressure file, with the lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" and "full ...". It returns nil if the
// file does not exist or if accounting is off. If no value has changed, it returns the earlier reading.
func (d *hierarchyDir) readPressure(file string, earlier *Pressure) *Pressure {
	return pressureFrom(earlier, d.readText(file))
}

func pressureFrom(earlier *Pressure, text []byte) *Pressure {
	now, ok := parsePressure(text)
	switch {
	case !ok:
		return nil
	case earlier != nil && *earlier == now:
		return earlier
	}
	p := now
	return &p
}

// ReadPressures reads the pressures of the machine from a directory, normally /proc/pressure.
func ReadPressures(dir string) Pressures {
	b := kernfile.Get()
	defer b.Put()
	read := func(name string) *Pressure {
		text, _ := b.File(maxFile, dir, "/", name) // the kernel may not have the file, or accounting may be off
		return pressureFrom(nil, text)
	}
	return Pressures{read("cpu"), read("memory"), read("io")}
}

// parsePressure parses the text of a pressure file. The second result is false if the text contains no pressure.
func parsePressure(text []byte) (p Pressure, found bool) {
	for line := range bytes.Lines(text) {
		kind, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		s := &p.Some
		switch string(kind) {
		case "some":
		case "full":
			s = &p.Full
		default:
			continue
		}
		found = true
		for kv := range bytes.FieldsSeq(rest) {
			k, v, _ := bytes.Cut(kv, []byte("="))
			switch string(k) {
			case "total":
				n, _ := strconv.ParseUint(kernfile.StringView(v), 10, 64)
				s.Total = fromMicros(n)
			case "avg10":
				s.Avg10, _ = strconv.ParseFloat(kernfile.StringView(v), 64)
			case "avg60":
				s.Avg60, _ = strconv.ParseFloat(kernfile.StringView(v), 64)
			case "avg300":
				s.Avg300, _ = strconv.ParseFloat(kernfile.StringView(v), 64)
			}
		}
	}
	return p, found
}
