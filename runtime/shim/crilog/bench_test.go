package crilog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// BenchmarkWrite measures one read of a container's output, which has up to 16 KiB. It reports the lines per second and the calls of
// write(2) for each read.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct{ name, line string }{
		{"empty lines", "\n"},
		{"lines of 80 bytes", strings.Repeat("x", 79) + "\n"},
		{"lines of 4 KiB", strings.Repeat("x", 4<<10-1) + "\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, err := Open(filepath.Join(b.TempDir(), "0.log"), Options{MaxBytes: 10 << 20, MaxFiles: 5, Interval: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			s := l.Stream("stdout")
			count := 16 << 10 / len(c.line)
			p := bytes.Repeat([]byte(c.line), count)
			b.SetBytes(int64(len(p)))
			b.ReportAllocs()
			before := writes(b)
			for b.Loop() {
				s.Write(p)
			}
			b.ReportMetric(float64(writes(b)-before)/float64(b.N), "writes/op")
			b.ReportMetric(float64(b.N*count)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

// writes returns the number of calls of write(2) by this process.
func writes(tb testing.TB) (n int64) {
	tb.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		tb.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "syscw: %d", &n); err == nil {
			return n
		}
	}
	tb.Skip("the kernel does not count system calls")
	return 0
}
