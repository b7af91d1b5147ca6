package machine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
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
	if err := WriteProgram(r.sign, Build(t, "", "./packaging/sign")); err != nil {
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

// RunSign runs packaging/sign, and returns its output.
func (r *Releaser) RunSign(args ...string) (string, error) {
	out, err := exec.Command(r.sign, args...).CombinedOutput()
	return string(out), err
}

// BuildVersion returns the program of this checkout as the given version. Unlike BuildFailing, it returns a program without a fault. The
// programs of two versions differ only in the version's text, so versions of the same length are copies of one program that is built with
// another text in this place. A link takes seconds.
func (r *Releaser) BuildVersion(version string) []byte {
	r.t.Helper()
	mark := strings.Repeat("~#", len(version))[:len(version)]
	program := Build(r.t, "", "-tags", "grpcnotrace", "-ldflags", "-s -w -X main.version="+mark, ".")
	if n := bytes.Count(program, []byte(mark)); n != 1 {
		r.t.Fatalf("the program contains its version %s %d times", mark, n)
	}
	return bytes.Replace(program, []byte(mark), []byte(version), 1)
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

// ReleaseFor is like Release for an architecture. It signs with the keys in the given files, or with the Releaser's own key if no
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

// built contains the programs that Build has built in this process, by module and arguments.
var built sync.Map // of func() ([]byte, error)

// Build builds a program from a module of this checkout, and returns the content of the program. Each program is built once per test
// program, because linking one takes seconds. The caller must not change the content.
func Build(t testing.TB, module string, args ...string) []byte {
	t.Helper()
	root := Root(t)
	build := sync.OnceValues(func() ([]byte, error) { return build(filepath.Join(root, module), args) })
	known, _ := built.LoadOrStore(module+"\n"+strings.Join(args, "\n"), build)
	b, err := known.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func build(dir string, args []string) ([]byte, error) {
	to, err := os.MkdirTemp("", "islet-program-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(to)
	file := filepath.Join(to, "program")
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-o", file}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %v: %v\n%s", args, err, out)
	}
	b, err := os.ReadFile(file)
	return slices.Clip(b), err // append copies it
}
