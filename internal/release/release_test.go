package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func newKey(t testing.TB) (Key, ed25519.PrivateKey) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Key(public), private
}

// packFiles returns an archive of files with the given contents.
func packFiles(t testing.TB, files ...string) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o4777, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(files[i+1]))
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

func TestSigned(t *testing.T) {
	a, signA := newKey(t)
	b, signB := newKey(t)
	c, signC := newKey(t)
	archive := packFiles(t, "islet", "x")
	r, err := Describe("0.2.0", "arm64", bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		by        []ed25519.PrivateKey
		keys      []Key
		threshold int
		bad       string // a part of the error
		change    func(string) string
	}{
		"one of one":          {by: []ed25519.PrivateKey{signA}, keys: []Key{a}, threshold: 1},
		"two of three":        {by: []ed25519.PrivateKey{signC, signA}, keys: []Key{a, b, c}, threshold: 2},
		"one of two":          {by: []ed25519.PrivateKey{signA}, keys: []Key{a, b}, threshold: 2, bad: "signed by 1 of the node's keys (" + a.ID() + "), but 2 are required"},
		"one, twice":          {by: []ed25519.PrivateKey{signA, signA}, keys: []Key{a, b}, threshold: 2, bad: "signed by 1"},
		"one key named twice": {by: []ed25519.PrivateKey{signA}, keys: []Key{a, a}, threshold: 2, bad: "signed by 1"},
		"of nobody":           {keys: []Key{a}, threshold: 1, bad: "signed by 0"},
		"of a stranger":       {by: []ed25519.PrivateKey{signB}, keys: []Key{a}, threshold: 1, bad: "signed by 0"},
		"a stranger too":      {by: []ed25519.PrivateKey{signB, signA}, keys: []Key{a}, threshold: 1},
		"no keys":             {by: []ed25519.PrivateKey{signA}, threshold: 1, bad: "signed by 0"},
		"none is asked for":   {by: []ed25519.PrivateKey{signA}, keys: []Key{a}, threshold: 0, bad: "is less than one"},
		"another version":     {by: []ed25519.PrivateKey{signA}, keys: []Key{a}, threshold: 1, bad: "is wrong", change: func(s string) string { return strings.Replace(s, "0.2.0", "0.3.0", 1) }},
		"another size":        {by: []ed25519.PrivateKey{signA}, keys: []Key{a}, threshold: 1, bad: "is wrong", change: func(s string) string { return strings.Replace(s, "size: ", "size: 1", 1) }},
		"of another's name":   {by: []ed25519.PrivateKey{signB}, keys: []Key{a}, threshold: 1, bad: "is wrong", change: func(s string) string { return strings.Replace(s, b.ID(), a.ID(), 1) }},
		"good behind the lies": {by: []ed25519.PrivateKey{signA}, keys: []Key{a}, threshold: 1, bad: "is wrong", change: func(s string) string {
			_, last, _ := strings.Cut(s, "---\n")
			other := "A"
			if last[20] == 'A' {
				other = "B"
			}
			return s + last[:20] + other + last[21:]
		}},
	} {
		text := string(r.Sign(x.by...))
		if x.change != nil {
			text = x.change(text)
		}
		if name == "good behind the lies" { // the first signature of a key counts
			body, sigs, _ := strings.Cut(text, "---\n")
			one, two, _ := strings.Cut(sigs, "\n")
			text = body + "---\n" + strings.TrimSuffix(two, "\n") + "\n" + one + "\n"
		}
		got, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v in\n%s", name, err, text)
			continue
		}
		err = got.VerifySignatures(x.keys, x.threshold)
		if (err == nil) != (x.bad == "") || err != nil && !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v, not %q", name, err, x.bad)
		}
	}
}

func TestParse(t *testing.T) {
	_, key := newKey(t)
	r, err := Describe("1.0.0-rc.1", "arm", strings.NewReader("archive"))
	if err != nil {
		t.Fatal(err)
	}
	good := string(r.Sign(key))
	got, err := Parse([]byte(good))
	if err != nil || got.Version != "1.0.0-rc.1" || got.Arch != "arm" || got.Size != 7 || got.SHA512 != r.SHA512 ||
		len(got.text.Signers()) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for change, bad := range map[[2]string]string{
		{"islet release 1", "islet release 2"}:            "begins with",
		{"version: ", "Version: "}:                        "not version",
		{"1.0.0-rc.1", "../../1.0.0"}:                     "not a version",
		{"arch: arm", "arch: arm\narch: arm64"}:           "has 5 fields",
		{"arch: arm", "arch: ARM "}:                       "not an architecture name",
		{"size: 7", "size: 07"}:                           "not a number of bytes",
		{"size: 7", "size: -7"}:                           "not a number of bytes",
		{"size: 7", "size: 99999999999"}:                  "not a number of bytes",
		{"sha512: ", "sha512: 00"}:                        "not a SHA-512",
		{"---\n", "--\n"}:                                 "no line of dashes",
		{"---\n", "---\nkey notBase64\n"}:                 "not an Ed25519 signature",
		{"---\n", "---\n" + got.text.Signers()[0] + "\n"}: "not an Ed25519 signature",
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v, not %q", change, err, bad)
		}
	}
	if _, err := Parse([]byte(good + strings.Repeat("x", MaxText))); err == nil {
		t.Error("a text without end is read")
	}
	for _, text := range []string{"", "islet-ed25519", "islet-ed25519 AAAA", "ssh-ed25519 " + strings.Repeat("A", 43) + "="} {
		if k, err := ParseKey(text); err == nil {
			t.Errorf("%q is a key: %v", text, k)
		}
	}
	public := Key(key.Public().(ed25519.PublicKey))
	if k, err := ParseKey(" " + public.String() + "\n"); err != nil || k.ID() != public.ID() {
		t.Errorf("%v, %v", k, err)
	}
}

// TestSave checks that the signed archive is saved. For any other data, no file may remain.
func TestSave(t *testing.T) {
	archive := packFiles(t, "islet", strings.Repeat("x", 1000))
	r, err := Describe("0.2.0", "amd64", bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(archive)
	other[len(other)/2] ^= 1
	dir := t.TempDir()
	for name, x := range map[string]struct {
		sent []byte
		bad  string
	}{
		"whole":    {archive, ""},
		"changed":  {other, "its SHA-512 differs"},
		"cut off":  {archive[:len(archive)-1], "bytes, the release says"},
		"longer":   {append(bytes.Clone(archive), 1), "at least"},
		"very big": {bytes.Repeat(archive, 50), "at least"},
		"nothing":  {nil, "has 0 bytes"},
	} {
		file := filepath.Join(dir, name)
		err := r.Save(bytes.NewReader(x.sent), file)
		if (err == nil) != (x.bad == "") || err != nil && !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v, not %q", name, err, x.bad)
		}
		kept, _ := os.ReadFile(file)
		if _, statErr := os.Stat(file); (statErr == nil) != (err == nil) || err == nil && !bytes.Equal(kept, archive) {
			t.Errorf("%s: %d bytes are kept, %v", name, len(kept), statErr)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), link); err != nil {
		t.Fatal(err)
	}
	if err := r.Save(bytes.NewReader(archive), link); err == nil {
		t.Error("a link that was there before was followed")
	}
	if _, err := os.Lstat(link); err != nil {
		t.Error("an existing file was removed")
	}
}

func TestExtract(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	text := string(program)
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	for name, x := range map[string]struct {
		archive []byte
		arch    string
		bad     string
	}{
		"good":                 {packFiles(t, "islet-0.2.0/LICENSE", "x", "islet-0.2.0/islet", text), runtime.GOARCH, ""},
		"of no folder":         {packFiles(t, "islet", text), runtime.GOARCH, ""},
		"as tar has it":        {packFiles(t, "./islet-0.2.0/islet", text), runtime.GOARCH, ""},
		"behind its settings":  {packFiles(t, "islet-0.2.0/default/islet", "# settings", "./islet-0.2.0/a/../b/islet", "x", "islet-0.2.0/islet", text), runtime.GOARCH, ""},
		"too far down":         {packFiles(t, "islet-0.2.0/bin/islet", text), runtime.GOARCH, "has no program"},
		"another machine":      {packFiles(t, "islet", text), other, "the program is built for"},
		"unknown machine":      {packFiles(t, "islet", text), "s390x", "is not built for"},
		"no program":           {packFiles(t, "islet/README", "x", "a/islet.old", text), runtime.GOARCH, "has no program"},
		"a script":             {packFiles(t, "islet", "#!/bin/sh\nreboot\n"), runtime.GOARCH, "not an ELF file"},
		"the beginning of one": {packFiles(t, "islet", text[:40]), runtime.GOARCH, "not an ELF file"},
		"no gzip":              {[]byte("islet"), runtime.GOARCH, "cannot be unpacked by gzip"},
		"cut off":              {packFiles(t, "a/islet", text)[:100_000], runtime.GOARCH, "entry \"a/islet\" of the archive: unpack"},
		"no tar":               {gzipped("islet"), runtime.GOARCH, "cannot be read at its beginning"},
		"cut off before":       {packFiles(t, "LICENSE", text, "islet", text)[:100_000], runtime.GOARCH, "cannot be read from entry \"LICENSE\" on"},
	} {
		dir := t.TempDir()
		file := filepath.Join(t.TempDir(), "archive")
		if err := os.WriteFile(file, x.archive, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := (&Release{Arch: x.arch}).Extract(t.Context(), file, dir, func(size int64) error {
			if size > int64(len(text)) {
				t.Errorf("%s: room for %d bytes is asked for", name, size)
			}
			return nil
		})
		if (err == nil) != (x.bad == "") || err != nil && !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v, not %q", name, err, x.bad)
		}
		left, _ := os.ReadDir(dir)
		if err != nil {
			if len(left) > 0 || got != "" {
				t.Errorf("%s: files %v are left, the result is %q", name, left, got)
			}
			continue
		}
		info, err := os.Stat(got)
		if kept, _ := os.ReadFile(got); err != nil || info.Mode() != 0o755 || string(kept) != text || len(left) != 1 {
			t.Errorf("%s: %v %v, %d bytes, %v", name, err, info, len(kept), left)
		}
	}
}

// TestExtractStops checks that a program is not written if the disk has too little space, and that the unpacking of an endless archive is
// stopped. No data is read after the context has ended.
func TestExtractStops(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "archive")
	extract := func(ctx context.Context, archive []byte, room func(int64) error) error {
		t.Helper()
		if err := os.WriteFile(file, archive, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := (&Release{Arch: runtime.GOARCH}).Extract(ctx, file, dir, room)
		if left, _ := os.ReadDir(dir); len(left) > 0 || got != "" {
			t.Errorf("files %v are left, the result is %q", left, got)
		}
		return err
	}
	whole := packFiles(t, "LICENSE", "x", "a/islet", string(self))
	full := errors.New("full")
	if err := extract(t.Context(), whole, func(size int64) error {
		if left, _ := os.ReadDir(dir); len(left) > 0 || size != int64(len(self)) {
			t.Errorf("%d bytes of %d are asked for after %v was made", size, len(self), left)
		}
		return full
	}); !errors.Is(err, full) || !strings.Contains(err.Error(), `entry "a/islet"`) {
		t.Errorf("no room: %v", err)
	}
	bomb := append(zeroArchive(t, 64<<20), whole...)
	if _, err := (&Release{Arch: runtime.GOARCH}).extractWithLimit(t.Context(), bytes.NewReader(bomb), 32<<20, dir, func(int64) error { return full }); err == nil || errors.Is(err, full) ||
		!strings.Contains(err.Error(), `cannot be read from entry "zeros" on: it unpacks to 32 MiB or more`) {
		t.Errorf("%d bytes that unpack to more than is allowed: %v", len(bomb), err)
	}
	late := errors.New("late")
	for _, archive := range [][]byte{whole, sparseArchive(t, int64(len(self)))} {
		ctx, stop := context.WithCancelCause(t.Context())
		if err := extract(ctx, archive, func(int64) error { stop(late); return nil }); !errors.Is(err, late) {
			t.Errorf("stopped within the program: %v", err)
		}
		if err := extract(ctx, archive, func(int64) error { t.Error("unpacking continued"); return nil }); !errors.Is(err, late) {
			t.Errorf("stopped before: %v", err)
		}
	}
}

// zeroArchive returns the beginning of an archive, which is an entry with the given number of zeros.
func zeroArchive(t testing.TB, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := tar.NewWriter(z).WriteHeader(&tar.Header{Name: "zeros", Size: size, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	z.Close()
	const part = 16 << 20
	var some bytes.Buffer
	z = gzip.NewWriter(&some)
	z.Write(make([]byte, part))
	z.Close()
	return append(b.Bytes(), bytes.Repeat(some.Bytes(), int(size/part))...)
}

// sparseArchive returns an archive whose program consists of a single hole. The archive contains no data for it.
func sparseArchive(t testing.TB, size int64) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, Program), nil, 0o755), os.Truncate(filepath.Join(dir, Program), size)); err != nil {
		t.Fatal(err)
	}
	b, err := exec.Command("tar", "-C", dir, "-czS", "--format=posix", Program).Output()
	if err != nil || len(b) > 10_000 {
		t.Fatalf("tar makes %d bytes of a hole, %v", len(b), err)
	}
	return b
}

func gzipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(strings.Repeat(text, 200)))
	z.Close()
	return b.Bytes()
}

// FuzzParse checks that Parse returns only the signed fields, for any text.
func FuzzParse(f *testing.F) {
	key, private := newKey(f)
	r, err := Describe("0.2.0", "riscv64", strings.NewReader("archive"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.Sign(private))
	f.Add(r.Sign())
	f.Add([]byte("islet release 1\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Parse(text)
		if err != nil || got.VerifySignatures([]Key{key}, 1) != nil {
			return
		}
		if got.Version != r.Version || got.Arch != r.Arch || got.Size != r.Size || got.SHA512 != r.SHA512 {
			t.Errorf("forged: %+v", got)
		}
	})
}
