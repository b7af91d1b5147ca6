package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// packed returns a compressed tar stream that write has written. The stream has no end marker.
func packed(t *testing.T, write func(*tar.Writer, io.Writer)) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	write(w, z)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func putEntry(t *testing.T, w *tar.Writer, h tar.Header) {
	t.Helper()
	h.Mode = 0o755
	if err := w.WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
}

// putEntries writes n entries that differ only in the digits that replace "NNNN" in the extended header. It encodes the entry only once,
// because archive/tar is slow for long headers.
func putEntries(t *testing.T, z io.Writer, n int, h tar.Header) {
	t.Helper()
	var b bytes.Buffer
	putEntry(t, tar.NewWriter(&b), h)
	block := b.Bytes()
	at := 512 + bytes.Index(block[512:], []byte("NNNN"))
	if at < 512 {
		t.Fatalf("no extended header of %.40q", h.Name)
	}
	for i := range n {
		copy(block[at:], fmt.Sprintf("%04d", i))
		if _, err := z.Write(block); err != nil {
			t.Fatal(err)
		}
	}
}

// ended writes the two empty blocks that end a tar stream. More zero bytes follow.
func ended(t *testing.T, w io.Writer, more int) {
	t.Helper()
	if _, err := io.CopyN(w, zeros{}, int64(1024+more)); err != nil {
		t.Fatal(err)
	}
}

// mostHeaders is the maximum memory that the headers of an archive may use, in bytes. The headers of a bomb are larger.
const mostHeaders = 48 << 20

// TestArchiveBombs checks that the headers of an archive use little memory. An endless archive is rejected.
func TestArchiveBombs(t *testing.T) {
	long := strings.Repeat("x", 900<<10)
	for name, bomb := range map[string]struct {
		want  string
		write func(*tar.Writer, io.Writer)
	}{
		"long names": {"more than 4096 bytes", func(_ *tar.Writer, z io.Writer) {
			putEntries(t, z, 60, tar.Header{Name: "NNNN" + long, Typeflag: tar.TypeReg, Format: tar.FormatPAX})
		}},
		"long links": {"more than 4096 bytes", func(_ *tar.Writer, z io.Writer) {
			putEntries(t, z, 60, tar.Header{Name: "l", Linkname: "NNNN" + long, Typeflag: tar.TypeSymlink, Format: tar.FormatGNU})
		}},
		"many names": {"the names in the archive", func(_ *tar.Writer, z io.Writer) {
			putEntries(t, z, 4000, tar.Header{Name: "NNNN" + long[:4000], Typeflag: tar.TypeReg, Format: tar.FormatPAX})
		}},
		"long comments": {"neither index.json", func(_ *tar.Writer, z io.Writer) {
			putEntries(t, z, 60, tar.Header{Name: "äNNNN", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"X.path": long}})
			ended(t, z, 0)
		}},
		"headers of nothing": {"the headers of one file", func(_ *tar.Writer, z io.Writer) {
			block := paxHeaderOnly(t)
			for range 20 << 20 / len(block) {
				if _, err := z.Write(block); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			data := packed(t, bomb.write)
			s := newService(t, nil)
			wantHeap(t, mostHeaders, func() {
				_, err := s.ImportArchive(t.Context(), bytes.NewReader(data), "bomb", nil)
				if err == nil || !strings.Contains(err.Error(), bomb.want) || !errdefs.IsInvalidArgument(err) {
					t.Errorf("import: %.300v, want %q", err, bomb.want)
				}
			})
			if got := left(t, s); len(got) > 0 {
				t.Errorf("left over: %q", got)
			}
		})
	}
}

// paxHeaderOnly returns a PAX header. No file follows it.
func paxHeaderOnly(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	putEntry(t, w, tar.Header{Name: "f", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"X.y": "z"}})
	return b.Bytes()[:b.Len()-512]
}

// extracted unpacks a layer and returns its directory. If bottom is true, the layer is the first one of the image.
func extracted(ctx context.Context, t *testing.T, s *Service, layer []byte, bottom bool) (string, error) {
	t.Helper()
	dir := t.TempDir()
	at := &allocation{shared: &s.shared}
	defer at.releaseAll()
	if err := at.waitForTurn(ctx); err != nil {
		return "", err
	}
	_, err := s.extractLayer(ctx, at, bytes.NewReader(layer), []mount.Mount{{Type: "bind", Source: dir}}, bottom)
	return dir, err
}

// TestLayerBombs checks that the memory for the file names of a layer is limited. An endless layer is rejected.
func TestLayerBombs(t *testing.T) {
	long := strings.Repeat("x", 900<<10)
	for name, bomb := range map[string]struct {
		want  string
		write func(*tar.Writer, io.Writer)
	}{
		"padding": {"has data after its end", func(w *tar.Writer, z io.Writer) {
			putEntry(t, w, tar.Header{Name: "a", Typeflag: tar.TypeReg})
			ended(t, z, 2*maxPadding)
		}},
		"little padding": {"", func(w *tar.Writer, z io.Writer) {
			putEntry(t, w, tar.Header{Name: "a", Typeflag: tar.TypeReg})
			ended(t, z, maxPadding/2)
		}},
		"headers of nothing": {"the headers of one file", func(_ *tar.Writer, z io.Writer) {
			block := paxHeaderOnly(t)
			for range 20 << 20 / len(block) {
				if _, err := z.Write(block); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"long names": {"more than 4096 bytes", func(w *tar.Writer, _ io.Writer) {
			putEntry(t, w, tar.Header{Name: long, Typeflag: tar.TypeReg, Format: tar.FormatPAX})
		}},
		"comments of directories": {"", func(_ *tar.Writer, z io.Writer) {
			putEntries(t, z, 60, tar.Header{Name: "äNNNN", Typeflag: tar.TypeDir, PAXRecords: map[string]string{"X.y": long}})
			ended(t, z, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			data := packed(t, bomb.write)
			s := newService(t, nil)
			wantHeap(t, mostHeaders, func() {
				if _, err := extracted(t.Context(), t, s, data, true); (err == nil) != (bomb.want == "") || err != nil &&
					!strings.Contains(err.Error(), bomb.want) {
					t.Errorf("unpack: %.300v, want %q", err, bomb.want)
				}
			})
		})
	}
}

// TestNamesBehindLinks checks names in a layer whose path contains a symlink. The limit applies to the length of the resolved path.
func TestNamesBehindLinks(t *testing.T) {
	root := t.TempDir()
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 18)
	if err := os.MkdirAll(filepath.Join(root, deep), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(deep, filepath.Join(root, "l")); err != nil {
		t.Fatal(err)
	}
	s := newService(t, nil)
	at := &allocation{shared: &s.shared}
	defer at.releaseAll()
	in := &positionReader{Reader: bytes.NewReader(nil)}
	l := &layerNames{in: in, root: root, disk: root, reserveSpace: func(n int64) error { return at.needNames(t.Context(), n) }}
	if err := l.checkHeader(&tar.Header{Name: "l", Linkname: deep, Typeflag: tar.TypeSymlink}); err != nil {
		t.Fatal(err)
	}
	const most = maxLayerNames / 3600
	for i := range 2 * most {
		err := l.checkHeader(&tar.Header{Name: fmt.Sprint("l/", i), Linkname: "f", Typeflag: tar.TypeLink})
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "too many files") || i < most/2 || i > most {
			t.Errorf("after %d files: %v", i, err)
		}
		return
	}
	t.Error("the number of files is not limited")
}

// TestEndlessPadding checks zeros that follow the end of a layer. A long stream of zeros is rejected early, although its compressed size is
// small.
func TestEndlessPadding(t *testing.T) {
	layer := packed(t, func(w *tar.Writer, z io.Writer) {
		putEntry(t, w, tar.Header{Name: "a", Typeflag: tar.TypeReg})
		ended(t, z, 0)
	})
	more := packed(t, func(_ *tar.Writer, z io.Writer) { ended(t, z, 16<<20) })
	read := 0
	endless := io.MultiReader(bytes.NewReader(layer), readerFunc(func(p []byte) (int, error) {
		n := copy(p, more[read%len(more):])
		read += n
		return n, nil
	}))
	s := newService(t, nil)
	at := &allocation{shared: &s.shared}
	defer at.releaseAll()
	_, err := s.extractLayer(t.Context(), at, endless, []mount.Mount{{Type: "bind", Source: t.TempDir()}}, true)
	if err == nil || !strings.Contains(err.Error(), "has data after its end") || read > 1<<20 {
		t.Errorf("after %d bytes: %v", read, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestOpaqueWhiteouts checks a layer with many opaque markers for one directory. The directory is not walked for each marker. In the first
// layer of an image, the directory is not walked at all, because there is no lower layer. The layer's own files must remain.
func TestOpaqueWhiteouts(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const files = 1500
	layer := packed(t, func(w *tar.Writer, z io.Writer) {
		for i := range files {
			putEntry(t, w, tar.Header{Name: fmt.Sprint("d/", i), Typeflag: tar.TypeReg})
		}
		putEntry(t, w, tar.Header{Name: "d/deep/kept", Typeflag: tar.TypeReg})
		putEntry(t, w, tar.Header{Name: "d/gone", Typeflag: tar.TypeReg})
		for range files {
			putEntry(t, w, tar.Header{Name: "d/.wh..wh..opq", Typeflag: tar.TypeReg})
		}
		putEntry(t, w, tar.Header{Name: "d/.wh.gone", Typeflag: tar.TypeReg})
		ended(t, z, 0)
	})
	for _, bottom := range []bool{true, false} {
		s := newService(t, nil)
		dir, err := extracted(ctx, t, s, layer, bottom)
		if err != nil {
			t.Fatal(err)
		}
		want := files
		if bottom {
			want++ // counts the directory deep, which has no entry of its own
		}
		if list, err := os.ReadDir(filepath.Join(dir, "d")); err != nil || len(list) != want {
			t.Errorf("bottom %v: %d files are left, want %d (%v)", bottom, len(list), want, err)
		}
	}
}

// skippable returns a skippable zstd frame, as pzstd and other programs write it at the beginning of a stream.
func skippable(n int) []byte {
	return slices.Concat([]byte{0x50, 0x2a, 0x4d, 0x18, byte(n), byte(n >> 8), 0, 0}, make([]byte, n))
}

// TestZstdFrames checks zstd streams with a skippable frame at the beginning, with several frames, and with a window of 64 MiB. A larger
// window must cause an error that contains advice.
func TestZstdFrames(t *testing.T) {
	plain := tarOf(t, file{name: "a", body: noise(3, 300<<10)})
	whole := zstded(t, plain)
	for name, tt := range map[string]struct {
		data   []byte
		window int64
		want   string
	}{
		"one frame":           {whole, 0, ""},
		"skippable":           {slices.Concat(skippable(4), whole, skippable(300)), 0, ""},
		"frames":              {slices.Concat(skippable(4), zstded(t, plain[:1000]), skippable(0), zstded(t, nil), zstded(t, plain[1000:])), 0, ""},
		"the largest window":  {windowed(t, plain, maxWindow), maxWindow, ""},
		"too large a window":  {windowed(t, plain, 2*maxWindow), 0, "a window of 128 MiB, more than the 64 MiB that are supported: compress with a smaller one, such as by zstd without --ultra and with --long=26 at most"},
		"the second, as well": {slices.Concat(zstded(t, plain[:512]), windowed(t, plain[512:], 2*maxWindow)), 0, "a window of 128 MiB"},
		"cut":                 {whole[:len(whole)/2], 0, "EOF"},
		"cut in a block":      {whole[:20], 0, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			at := &allocation{shared: &s.shared}
			defer at.releaseAll()
			got, err := func() ([]byte, error) {
				r, err := newDecompressor(bytes.NewReader(tt.data), func(n int64) error { return at.needWindow(t.Context(), n) })
				if err != nil {
					return nil, err
				}
				defer r.Close()
				return io.ReadAll(r)
			}()
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%d of %d bytes: %v", len(got), len(plain), err)
			}
			if at.window < tt.window {
				t.Errorf("the allocated window is %d bytes, want %d", at.window, tt.window)
			}
			at.releaseAll() // the import below needs the same resources
			if _, err := s.ImportArchive(t.Context(), bytes.NewReader(archiveWith(t, plain, tt.data)), "zstd", nil); err != nil {
				t.Errorf("import: %v", err)
			}
		})
	}
}

// windowed compresses data with zstd and the given window size.
func windowed(t *testing.T, b []byte, window int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	// A frame header contains the window size only if it does not contain the content size.
	for _, part := range [][]byte{b[:len(b)/2], b[len(b)/2:]} {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// archiveWith returns an archive of an image with one compressed layer.
func archiveWith(t *testing.T, plain, layer []byte) []byte {
	t.Helper()
	config := ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain)}},
	}
	return tarOf(t,
		file{name: "manifest.json", body: toJSON(t, []dockerImage{{Config: "config.json", RepoTags: []string{"layer:1"}, Layers: []string{"l"}}})},
		file{name: "config.json", body: toJSON(t, config)},
		file{name: "l", body: string(layer)})
}

// TestCompressionOfNames checks uncompressed tar archives whose first file name begins like a compressed stream. They are recognized as
// uncompressed.
func TestCompressionOfNames(t *testing.T) {
	s := newService(t, nil)
	for _, name := range []string{"BZh.txt", "PK\x03\x04", "\x1f\x8b", "P*M\x18"} {
		plain := tarOf(t, file{name: name, body: "x"})
		if _, err := s.ImportArchive(t.Context(), bytes.NewReader(archiveWith(t, plain, plain)), "named", nil); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestLayerTypes checks the media types of layers. An encrypted layer, or a layer that is not a tar archive, is rejected.
func TestLayerTypes(t *testing.T) {
	const oci, docker = "application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."
	for _, good := range []string{oci + "v1.tar", oci + "v1.tar+gzip", oci + "v1.tar+zstd", oci + "nondistributable.v1.tar+gzip", docker + "diff.tar", docker + "diff.tar.gzip", docker + "diff.tar.zstd", docker + "foreign.diff.tar.gzip"} {
		if err := checkMediaType(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "text/plain", oci + "v1.tar+encrypted", oci + "v1.tar+gzip+encrypted", oci + "v1.tar+lz4", oci + "v1.erofs", "application/vnd.erofs.layer.v1"} {
		if err := checkMediaType(bad); !errors.Is(err, errdefs.ErrNotImplemented) || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
