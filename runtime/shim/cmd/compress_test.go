package main

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestLowerPriority checks that each thread of a compressor has the lowest priority. This includes threads that start later.
func TestLowerPriority(t *testing.T) {
	if os.Getenv("ISLET_TEST_YIELD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLowerPriority$", "-test.count=1")
		cmd.Env = append(os.Environ(), "ISLET_TEST_YIELD=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := lowerPriority(); err != nil {
		t.Fatal(err)
	}
	var threads, ready sync.WaitGroup
	end := make(chan struct{})
	for range 20 {
		ready.Add(1)
		threads.Go(func() {
			runtime.LockOSThread()
			ready.Done()
			<-end
		})
	}
	ready.Wait()
	stats, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil || len(stats) < 20 {
		t.Errorf("%d threads, %v", len(stats), err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); f[16] != "19" || f[38] != "5" {
			t.Errorf("%s: niceness %s, scheduling class %s; want 19, 5", path, f[16], f[38])
		}
	}
	close(end)
	threads.Wait()
}

func TestCompress(t *testing.T) {
	dir := t.TempDir()
	log, secret := dir+"/0.log.1", dir+"/secret"
	for path, text := range map[string]string{log: "a line", secret: "precious"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, log+".gz.tmp"); err != nil { // a pod has created this symlink in advance
		t.Fatal(err)
	}
	if err := compressFile(dir, "0.log.1"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(log + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != "a line" {
		t.Errorf("got %q, %v", got, err)
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
	if err := compressFile(dir, "0.log.1"); err != nil {
		t.Errorf("a missing file: %v", err)
	}
	for _, make := range []func() error{func() error { return os.Symlink(secret, dir+"/x") }, func() error { return syscall.Mkfifo(dir+"/x", 0o600) }} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if err := compressFile(dir, "x"); err == nil {
			t.Error("a file that is not regular was compressed")
		}
		if err := os.Remove(dir + "/x"); err != nil {
			t.Fatal(err)
		}
	}

	// If a symlink replaces the directory of the log, the symlink is not followed.
	if err := errors.Join(os.Mkdir(dir+"/pod", 0o755), os.Mkdir(dir+"/other", 0o755),
		os.WriteFile(dir+"/other/0.log.1", []byte("precious"), 0o600), os.Symlink("../other", dir+"/pod/c")); err != nil {
		t.Fatal(err)
	}
	if err := compressFile(dir, "pod/c/0.log.1"); err == nil {
		t.Error("a log was compressed through a link")
	}
	if l, err := os.ReadDir(dir + "/other"); err != nil || len(l) != 1 || l[0].Name() != "0.log.1" {
		t.Errorf("the link's target has %v, %v", l, err)
	}
}
