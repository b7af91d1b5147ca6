package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestWritten checks that the written bytes of a process include the bytes of its child processes. The written bytes of a thread include
// no child processes.
func TestWritten(t *testing.T) {
	write := func(root, path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := t.TempDir()
	write(root, "7/io", "rchar: 1\nwrite_bytes: 1000\ncancelled_write_bytes: 100\n")
	write(root, "7/task/7/io", "write_bytes: 300\ncancelled_write_bytes: 0\n")
	write(root, "7/task/8/io", "write_bytes: 5\ncancelled_write_bytes: 50\n")
	r := Reader{Root: root}
	if all, own, none := r.WrittenBytes(7), r.OwnWritten(7), r.WrittenBytes(8); all != 1000 || own != 305 || none != 0 {
		t.Errorf("%d, own %d, of none %d", all, own, none)
	}
}

// TestSelfWritten checks that SelfWritten counts the bytes that this process writes. It does not count the bytes of the descendants.
func TestSelfWritten(t *testing.T) {
	const size = 8 << 20
	dir := t.TempDir()
	self, all := SelfWritten(), Reader{}.WrittenBytes(0)
	cmd := exec.Command("sh", "-c", "sh -c 'head -c 8388608 /dev/zero > child'; exit 0")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if grew := (Reader{}).WrittenBytes(0) - all; grew < size {
		t.Skipf("this file system counts %d bytes of %d", grew, size)
	}
	if grew := SelfWritten() - self; grew > size/8 {
		t.Errorf("%d bytes of a child's", grew)
	}
	self = SelfWritten()
	if err := os.WriteFile(filepath.Join(dir, "own"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	if grew := SelfWritten() - self; grew < size || grew > size*3/2 {
		t.Errorf("%d bytes of %d", grew, size)
	}
}

// TestRunning checks that a child process is found by the directory of its program.
func TestRunning(t *testing.T) {
	dir := t.TempDir()
	sleep, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "cat")
	if err := os.WriteFile(program, bytes.Clone(data), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := (Reader{}).RunningFrom(dir); !slices.Equal(got, []int{cmd.Process.Pid}) {
		t.Errorf("%v, not %d", got, cmd.Process.Pid)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
