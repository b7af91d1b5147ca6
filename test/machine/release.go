package machine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A Releaser builds versions of islet for updates of a node, and signs them with packaging/sign.
type Releaser struct {
	Public string // the public key in the form of EdgeConfiguration's update.keys
	Key    string // the file of the private key

	t    testing.TB
	sign string // packaging/sign
}

// NewReleaser returns a Releaser with a new key.
func NewReleaser(t testing.TB) *Releaser {
	t.Helper()
	dir := t.TempDir()
	r := &Releaser{t: t, sign: filepath.Join(dir, "sign"), Key: filepath.Join(dir, "key")}
	if err := os.WriteFile(r.sign, Build(t, "", "./packaging/sign"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.Public = r.NewKey(r.Key)
	return r
}

// NewKey writes a new key to a file and returns the public key.
func (r *Releaser) NewKey(file string) string {
	r.t.Helper()
	public, err := exec.Command(r.sign, "key", file).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(public))
}

// BuildVersion builds this checkout as the given version. Unlike BuildFailing, it builds a program
// without a fault.
func (r *Releaser) BuildVersion(version string) []byte {
	r.t.Helper()
	return Build(r.t, "", "-tags", "grpcnotrace", "-ldflags", "-s -w -X main.version="+version, ".")
}

// BuildFailing builds test/badislet. The caller appends the last line, which selects the fault.
func (r *Releaser) BuildFailing() []byte {
	r.t.Helper()
	return Build(r.t, "test", "./badislet")
}

// Release writes an archive that contains the given program as the given version of islet, and
// signs the archive.
func (r *Releaser) Release(file, version string, program []byte) {
	r.t.Helper()
	r.ReleaseFor(file, version, runtime.GOARCH, program)
}

// ReleaseFor does the same as Release for an architecture. It signs with the keys in the given files, or with the Releaser's own key if no
// file is given.
func (r *Releaser) ReleaseFor(file, version, arch string, program []byte, keys ...string) {
	r.t.Helper()
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.NoCompression)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "islet/islet", Size: int64(len(program)), Mode: 0o755, Typeflag: tar.TypeReg}); err != nil {
		r.t.Fatal(err)
	}
	w.Write(program)
	w.Close()
	z.Close()
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		r.t.Fatal(err)
	}
	r.Sign(file, version, arch, keys...)
}

// Sign signs an archive with the keys in the given files, or with the Releaser's own key if no file is given. It writes the release file
// next to the archive.
func (r *Releaser) Sign(file, version, arch string, keys ...string) {
	r.t.Helper()
	if len(keys) == 0 {
		keys = []string{r.Key}
	}
	if out, err := exec.Command(r.sign, append([]string{"release", version, arch, file}, keys...)...).CombinedOutput(); err != nil {
		r.t.Fatalf("sign: %v\n%s", err, out)
	}
}

// Build builds a program from a module of this checkout, and returns the content of the program.
func Build(t testing.TB, module string, args ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-o", file}, args...)...)
	cmd.Dir = filepath.Join(Root(t), module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %v: %v\n%s", args, err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
