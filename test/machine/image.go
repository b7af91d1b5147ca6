package machine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Image is the reference of the image that contains test/podtool.
const Image = "localhost/podtool:test"

var archive = sync.OnceValues(func() (string, error) { return archiveFor("") })

// archiveFor builds the image archive for an architecture, given as GOARCH. An empty name means
// this machine's architecture.
func archiveFor(arch string) (string, error) {
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", err
	}
	top := string(root[:len(root)-1])
	dir := filepath.Join(top, ".cache/podtool", arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, "lock")) // several test programs may build at the same time
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	tool, out := filepath.Join(dir, "podtool"), filepath.Join(dir, "podtool.tar")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", tool, "./podtool")
	build.Dir, build.Env = filepath.Join(top, "test"), append(os.Environ(), "CGO_ENABLED=0")
	args := []string{"run", "./packaging/mkimage", "-ref", Image, "-entrypoint", "/podtool", "-o", out}
	if arch != "" {
		build.Env = append(build.Env, "GOARCH="+arch, "GOARM=7")
		args = append(args, "-arch", arch)
	}
	pack := exec.Command("go", append(args, tool)...)
	pack.Dir, pack.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	for _, c := range []*exec.Cmd{build, pack} {
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return "", err
		}
	}
	return out, nil
}

// Pack writes the archive of an image with the given files. Its containers run the first one.
func Pack(t testing.TB, ref, archive string, files ...string) {
	t.Helper()
	args := []string{"run", "./packaging/mkimage", "-ref", ref, "-entrypoint", "/" + filepath.Base(files[0]), "-o", archive}
	pack := exec.Command("go", append(args, files...)...)
	pack.Dir = Root(t)
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("pack the image %s: %v\n%s", ref, err, out)
	}
}

// ArchiveFor is like Archive for another architecture, given as GOARCH.
func ArchiveFor(t testing.TB, arch string) string {
	t.Helper()
	a, err := archiveFor(arch)
	if err != nil {
		t.Fatalf("build the test image for %s: %v", arch, err)
	}
	return a
}

// Archive returns the path of an image archive of podtool. The archive is built once per run.
func Archive(t testing.TB) string {
	t.Helper()
	a, err := archive()
	if err != nil {
		t.Fatalf("build the test image: %v", err)
	}
	return a
}

// RefOf returns the reference of an image that ArchivesOf has built.
func RefOf(name string) string { return "localhost/" + name + ":test" }

// ArchivesOf builds an image archive of podtool for each name and returns the paths. Each image
// also contains a file of the given number of MiB. No other image contains this file.
func ArchivesOf(t testing.TB, mib map[string]int) (archives []string) {
	t.Helper()
	dir := t.TempDir()
	pack, tool := filepath.Join(dir, "mkimage"), filepath.Join(filepath.Dir(Archive(t)), "podtool")
	if err := WriteProgram(pack, Build(t, "", "-ldflags=-s -w", "./packaging/mkimage")); err != nil {
		t.Fatal(err)
	}
	for name, n := range mib {
		b := make([]byte, n<<20)
		rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32s", name)))).Read(b)
		own, archive := filepath.Join(dir, name+".own"), filepath.Join(dir, name+".tar")
		if err := os.WriteFile(own, b, 0o644); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(pack, "-ref", RefOf(name), "-entrypoint", "/podtool", "-o", archive, tool, own)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		archives = append(archives, archive)
	}
	return archives
}

// InstallImage copies podtool's image into the directory from which the agent imports images.
func (m *Machine) InstallImage() {
	m.t.Helper()
	dir := filepath.Join(m.Disk, "state/images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	b, err := os.ReadFile(Archive(m.t))
	if err != nil {
		m.t.Fatal(err)
	}
	m.Write("state/images/podtool.tar", string(b))
}
