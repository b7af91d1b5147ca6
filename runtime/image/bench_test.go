package image

import (
	"archive/tar"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/runtime/cri"
)

// benchSize is the unpacked size of the benchmarks' layer, in bytes.
const benchSize = 200 << 20

// benchImage returns an image with one layer. The layer has many files that can be compressed to half of their size.
func benchImage(tb testing.TB) v1.Image {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "layer.tar")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	const n = 64 << 10
	body := make([]byte, n)
	for i := range benchSize / n {
		copy(body, noise(uint64(i), n/2))
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d/f%d", i%50, i), Mode: 0o644, Size: n, Typeflag: tar.TypeReg}); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	l, err := tarball.LayerFromFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return imageOf(tb, "", l)
}

// cost reports the CPU time of f, the bytes that f writes to the disk, and the peak memory.
func cost(b *testing.B, f func() error) {
	b.Helper()
	cpu := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	debug.FreeOSMemory()
	memory := procField(b, "/proc/self/status", "VmRSS:")
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
	before, written := cpu(), procField(b, "/proc/self/io", "write_bytes:")
	if err := f(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(cpu()-before, "cpu-s")
	b.ReportMetric(float64(procField(b, "/proc/self/io", "write_bytes:")-written)/(1<<20), "MiB-written")
	b.ReportMetric(float64(procField(b, "/proc/self/status", "VmHWM:")-memory)/(1<<10), "MiB-more-RSS")
}

func procField(b *testing.B, file, name string) int64 {
	b.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), name)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func BenchmarkImport(b *testing.B) {
	plain, zipped := filepath.Join(b.TempDir(), "plain.tar"), filepath.Join(b.TempDir(), "plain.tar.gz")
	data := dockerArchive(b, map[string]v1.Image{"bench:1": benchImage(b)})
	writeFile(b, plain, data)
	writeFile(b, zipped, gzipped(b, data))
	data = nil
	for _, c := range []struct {
		name string
		file string
		how  func(context.Context, *Service, *os.File) error
	}{
		{"file", plain, func(ctx context.Context, s *Service, f *os.File) error {
			_, err := s.importFile(ctx, f, func(digest.Digest) (bool, imageFilter, error) { return false, nil, nil }, func(cri.ImportProgress) {})
			return err
		}},
		{"stream", plain, func(ctx context.Context, s *Service, f *os.File) error {
			_, err := s.ImportArchive(ctx, f, f.Name(), nil)
			return err
		}},
		{"gzip stream", zipped, func(ctx context.Context, s *Service, f *os.File) error {
			_, err := s.ImportArchive(ctx, f, f.Name(), nil)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := benchService(b, "")
				f, err := os.Open(c.file)
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				b.StartTimer()
				cost(b, func() error { return c.how(b.Context(), s, f) })
			}
		})
	}
}

func benchService(b *testing.B, certs string) *Service {
	b.Helper()
	dir := b.TempDir()
	return serviceOn(b, newDaemon(b, dir), dir, func(c *Config) { c.Log, c.CertsDir = slog.New(slog.DiscardHandler), certs })
}

func BenchmarkPull(b *testing.B) {
	hub := newServer(b, false)
	hub.push(b, "bench:1", benchImage(b))
	certs := plainDir(b, hub.URL)
	for b.Loop() {
		b.StopTimer()
		s := benchService(b, certs)
		b.StartTimer()
		cost(b, func() error {
			_, err := pull(b.Context(), s, "registry.example/bench:1", nil)
			return err
		})
	}
}
