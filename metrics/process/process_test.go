package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProcess(t *testing.T) {
	cmd := exec.Command("cat", "-", "a b")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	p, ok := Reader{}.Process(cmd.Process.Pid)
	if !ok || p.PID != cmd.Process.Pid || p.Parent != os.Getpid() || p.User != uint32(os.Getuid()) || p.Threads != 1 ||
		p.Age < 0 || p.Age > time.Hour || p.State == "" {
		t.Errorf("%+v", p)
	}
	if p, ok := (Reader{}).Process(os.Getpid()); !ok || p.Memory < 1<<20 || !strings.Contains(p.Command, "test") {
		t.Errorf("this process: %+v", p)
	}
	if _, ok := (Reader{Root: t.TempDir()}).Process(1); ok {
		t.Error("a process that does not exist")
	}
}

// TestProcessText checks that names with brackets and long arguments are parsed, and that invalid files are not.
func TestProcessText(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, "7"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "7", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stat := "7 (a) R (b) S 3 7 7 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 5 0 100 1000 10 0\n"
	write("stat", stat)
	write("status", "Name:\ta\nUid:\t1000\t0\t0\t0\nNSpid:\t7\t2\n")
	write("cmdline", "")
	p, ok := Reader{Root: root}.Process(7)
	if !ok || p.Command != "[a) R (b]" || p.State != "S" || p.Parent != 3 || p.CPU != 4*time.Second || p.Threads != 5 ||
		p.Memory != 10*uint64(os.Getpagesize()) || p.User != 1000 || p.InnerPID != 2 {
		t.Errorf("%+v, %v", p, ok)
	}
	write("cmdline", "sh\x00-c\x00"+strings.Repeat("x", 1<<20))
	if p, _ = (Reader{Root: root}).Process(7); len(p.Command) != maxCommand || !strings.HasPrefix(p.Command, "sh -c xxx") {
		t.Errorf("%d bytes of arguments", len(p.Command))
	}
	for _, bad := range []string{"", "7", "7 (a", "7 (a) ", "7 (a) S 1 2", ") ("} {
		write("stat", bad)
		if p, ok := (Reader{Root: root}).Process(7); ok {
			t.Errorf("%q: %+v", bad, p)
		}
	}
}
