package update

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/release"
	"golang.org/x/sys/unix"
)

// programText returns the compiled program in testdata. Each archive contains the program, so it is small.
var programText = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "islet-update-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	text, err := os.ReadFile(file)
	return string(text), err
})

// program returns a program whose self-test has the given behaviour.
func program(t testing.TB, how string) string {
	t.Helper()
	text, err := programText()
	if err != nil {
		t.Fatal(err)
	}
	switch how {
	case "good":
		how = "print " + SelfTestOutput("0.2.0")
	case "other":
		how = "print " + SelfTestOutput("0.3.0")
	case "secrets":
		how += " " + SelfTestOutput("0.2.0")
	}
	return text + "\n" + how
}

// archive writes an archive and its release file to dir.
func archive(t testing.TB, dir, name, version, arch, program string, keys ...ed25519.PrivateKey) string {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "islet-" + version + "/islet", Size: int64(len(program)), Mode: 0o755, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte(program))
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := release.Describe(version, arch, bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, name)
	if err := errors.Join(os.WriteFile(file, b.Bytes(), 0o644), os.WriteFile(file+Suffix, r.Sign(keys...), 0o644)); err != nil {
		t.Fatal(err)
	}
	return file
}

func stager(t testing.TB) (*Stager, ed25519.PrivateKey) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &Stager{Dir: dir + "/state/update", Program: dir + "/bin/islet", Version: "0.1.0", Arch: runtime.GOARCH, Keys: []release.Key{release.Key(public)}, Threshold: 1,
		Client: http.DefaultClient, Log: slog.New(slog.DiscardHandler)}
	if err := errors.Join(os.Mkdir(dir+"/state", 0o700), os.Mkdir(dir+"/bin", 0o755),
		os.WriteFile(s.Program, []byte("old"), 0o755)); err != nil {
		t.Fatal(err)
	}
	return s, private
}

// This helper returns the names of the files in a stager's directories.
func left(t testing.TB, s *Stager) string {
	t.Helper()
	var out []string
	for _, dir := range []string{filepath.Dir(s.Program), s.Dir} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
	}
	return strings.Join(out, " ")
}

// TestStage checks that a signed program that runs on this machine is staged. In all other cases, the error gives the reason and no file is
// left. The installed program stays unchanged.
func TestStage(t *testing.T) {
	t.Setenv("SECRET", "of the agent")
	s, key := stager(t)
	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	dir := t.TempDir()
	good, other := program(t, "good"), "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	for name, x := range map[string]struct {
		file  string
		older bool
		bad   string
	}{
		"good":                      {file: archive(t, dir, "good", "0.2.0", runtime.GOARCH, good, key)},
		"clean":                     {file: archive(t, dir, "secrets", "0.2.0", runtime.GOARCH, program(t, "secrets"), key)},
		"of a stranger":             {file: archive(t, dir, "stranger", "0.2.0", runtime.GOARCH, good, stranger), bad: "signed by 0 of the node's keys"},
		"another machine":           {file: archive(t, dir, "machine", "0.2.0", other, good, key), bad: "it is for " + other},
		"the same version":          {file: archive(t, dir, "same", "0.1.0", runtime.GOARCH, good, key), bad: "version 0.1.0: it is not newer"},
		"an older version":          {file: archive(t, dir, "older", "0.0.9", runtime.GOARCH, good, key), bad: "it is not newer"},
		"a preview of it":           {file: archive(t, dir, "preview", "0.1.0-rc.1", runtime.GOARCH, good, key), bad: "it is not newer"},
		"crashes":                   {file: archive(t, dir, "crash", "0.2.0", runtime.GOARCH, program(t, "crash"), key), bad: "it does not run here"},
		"output of another version": {file: archive(t, dir, "words", "0.2.0", runtime.GOARCH, program(t, "other"), key), bad: "0.3.0"},
		"older, but says so; its program is another": {file: archive(t, dir, "consent", "0.0.9", runtime.GOARCH, good, key), older: true, bad: "fails its self-test"},
		"spams":        {file: archive(t, dir, "spam", "0.2.0", runtime.GOARCH, program(t, "spam"), key), bad: "spamspam"},
		"eats":         {file: archive(t, dir, "eat", "0.2.0", runtime.GOARCH, program(t, "eat"), key), bad: "fails its self-test"},
		"no program":   {file: archive(t, dir, "none", "0.2.0", runtime.GOARCH, "#!/bin/sh\n", key), bad: "not an ELF file"},
		"not there":    {file: dir + "/absent", bad: "no such file"},
		"a device":     {file: "/dev/zero", bad: "/dev/zero is not a regular file"},
		"a directory":  {file: dir, bad: "is not a regular file"},
		"no release":   {file: "/etc/passwd", bad: "the release must be next to the archive: open /etc/passwd.release"},
		"no path":      {file: "archive", bad: "neither the absolute path"},
		"no TLS":       {file: "http://example.com/islet", bad: "only https"},
		"another kind": {file: "ftp://example.com/islet", bad: "only https"},
	} {
		staged, err := s.Stage(t.Context(), x.file, x.older, nil, nil)
		if (err == nil) != (x.bad == "") || err != nil && !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v, not %q", name, err, x.bad)
		}
		want := "islet"
		if err == nil {
			want = filepath.Base(staged.Program) + " islet"
			if strings.HasPrefix(filepath.Base(staged.Program), "islet-") {
				want = strings.Join([]string{"islet", filepath.Base(staged.Program)}, " ")
			}
		}
		if got := left(t, s); got != want {
			t.Errorf("%s leaves %q, not %q", name, got, want)
		}
		if b, _ := os.ReadFile(s.Program); string(b) != "old" {
			t.Fatalf("%s: the installed program is %.20q", name, b)
		}
		s.RemoveOld()
	}
	s.Keys = nil
	if _, err := s.Stage(t.Context(), dir+"/good", false, nil, nil); !errors.Is(err, ErrKeys) {
		t.Error(err)
	}
}

// TestShared checks that a disk must have enough free space for all files on it, even if their directories are on different file systems.
func TestShared(t *testing.T) {
	const mib = 1 << 20 / 4096
	disk := func(id int32, kind int64, size, free uint64) *unix.Statfs_t {
		return &unix.Statfs_t{Type: kind, Bsize: 4096, Blocks: size, Bfree: free + 10, Bavail: free, Fsid: unix.Fsid{Val: [2]int32{id}}}
	}
	for name, x := range map[string]struct {
		state, program *unix.Statfs_t
		bad            string
	}{
		"one file system":              {disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 49*mib), disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 49*mib), "/bin has 49 MiB free, but 51 MiB are needed"},
		"with enough space":            {disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 50*mib), disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 50*mib), ""},
		"subvolumes":                   {disk(1, unix.BTRFS_SUPER_MAGIC, 100*mib, 49*mib), disk(2, unix.BTRFS_SUPER_MAGIC, 100*mib, 49*mib), "/bin has 49 MiB free, but 51 MiB are needed"},
		"subvolumes with enough space": {disk(1, unix.BTRFS_SUPER_MAGIC, 100*mib, 50*mib), disk(2, unix.BTRFS_SUPER_MAGIC, 100*mib, 50*mib), ""},
		"disks of one size":            {disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 48*mib), disk(2, unix.EXT4_SUPER_MAGIC, 100*mib, 49*mib), ""},
		"disks of two sizes":           {disk(1, unix.EXT4_SUPER_MAGIC, 90*mib, 49*mib), disk(2, unix.EXT4_SUPER_MAGIC, 100*mib, 49*mib), ""},
		"disks of two kinds":           {disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 49*mib), disk(2, unix.XFS_SUPER_MAGIC, 100*mib, 49*mib), ""},
		"too small for the archive":    {disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 9*mib), disk(2, unix.EXT4_SUPER_MAGIC, 100*mib, 49*mib), "/state has 9 MiB free, but 11 MiB are needed"},
		"too small for the program":    {disk(1, unix.EXT4_SUPER_MAGIC, 100*mib, 49*mib), disk(2, unix.EXT4_SUPER_MAGIC, 100*mib, 39*mib), "/bin has 39 MiB free, but 41 MiB are needed"},
	} {
		err := checkDisks([]part{{"/state", 10 << 20, x.state}, {"/bin", 40 << 20, x.program}})
		if fmt.Sprint(err) != cmp.Or(x.bad, "<nil>") {
			t.Errorf("%s: %v, not %q", name, err, x.bad)
		}
	}
}

// TestFull checks that no fetch begins without enough space. If the disk becomes full during a fetch, no file is left, and the fetch
// succeeds when there is space again.
func TestFull(t *testing.T) {
	// The disk is a tmpfs of limited size that the test fills. Only root may mount one.
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	s, key := stager(t)
	file := archive(t, t.TempDir(), "good", "0.2.0", runtime.GOARCH, program(t, "good"), key)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	disk := t.TempDir()
	if err := unix.Mount("disk", disk, "tmpfs", 0, fmt.Sprint("size=", 9*info.Size()/2)); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	s.Dir, s.Program = disk+"/state/update", disk+"/bin/islet"
	if err := errors.Join(os.Mkdir(disk+"/state", 0o700), os.Mkdir(disk+"/bin", 0o755),
		os.WriteFile(s.Program, []byte("old"), 0o755)); err != nil {
		t.Fatal(err)
	}
	unharmed := func(err error, says string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, not %q", err, says)
		}
		b, _ := os.ReadFile(s.Program)
		if got := left(t, s); got != "islet" || string(b) != "old" {
			t.Errorf("%q are left, and the program is %.20q", got, b)
		}
	}
	_, err = s.Stage(t.Context(), file, false, nil, func(status string, _, _ int64) { t.Errorf("%s without enough space", status) })
	unharmed(err, "MiB are needed")

	if err := unix.Mount("disk", disk, "tmpfs", unix.MS_REMOUNT, fmt.Sprint("size=", 6*info.Size())); err != nil {
		t.Fatal(err)
	}
	for moment, says := range map[string]string{
		"downloading": "no space left on device",
		"unpacking":   `good: entry "islet-0.2.0/islet" of the archive: ` + disk + "/bin has 0 MiB free",
	} {
		_, err = s.Stage(t.Context(), file, false, nil, func(status string, _, _ int64) {
			if status != moment {
				return
			}
			f, err := os.OpenFile(disk+"/fill", os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			if _, err := f.ReadFrom(rand.Reader); !errors.Is(err, unix.ENOSPC) {
				t.Error(err)
			}
		})
		unharmed(err, says)
		if err := os.Remove(disk + "/fill"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Stage(t.Context(), file, false, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestServers checks that nothing is installed if the server sends wrong, truncated, excessive or no data. The same applies to a redirect
// to another server.
func TestServers(t *testing.T) {
	s, key := stager(t)
	dir := t.TempDir()
	file := archive(t, dir, "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "good"), key)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(dir)))
	with := func(name string, serve func(w http.ResponseWriter)) {
		mux.HandleFunc("/"+name+Suffix, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file+Suffix) })
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, r *http.Request) { serve(w) })
	}
	with("short", func(w http.ResponseWriter) { w.Write(whole[:len(whole)/2]) })
	with("torn", func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		w.Write(whole[:1000])
	})
	with("long", func(w http.ResponseWriter) {
		for w.Write(whole); ; {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	with("other", func(w http.ResponseWriter) { w.Write(append([]byte{whole[0] ^ 1}, whole[1:]...)) })
	with("broken", func(w http.ResponseWriter) { http.Error(w, "broken", http.StatusInternalServerError) })
	mux.HandleFunc("/endless"+Suffix, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/away"+Suffix, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/islet", http.StatusFound)
	})
	mux.HandleFunc("/round"+Suffix, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round"+Suffix, http.StatusFound) })
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	if _, err := s.Stage(t.Context(), server.URL+"/islet.tar.gz", false, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("an untrusted certificate: %v", err)
	}
	s.Client = server.Client()
	for path, bad := range map[string]string{
		"islet.tar.gz": "", "short": "the release says", "torn": "unexpected EOF", "long": "at least", "other": "SHA-512 differs", "broken": "500",
		"endless": "more than", "away": "https to http", "round": "redirects", "none": "404",
	} {
		staged, err := s.Stage(t.Context(), server.URL+"/"+path, false, nil, nil)
		if (err == nil) != (bad == "") || err != nil && !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v, not %q", path, err, bad)
		}
		if err == nil {
			os.Remove(staged.Program)
		}
		if got := left(t, s); got != "islet" {
			t.Errorf("%s leaves %q", path, got)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := s.Stage(stopped, server.URL+"/islet.tar.gz", false, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// TestProgress checks that a fetch reports its progress, and that a full disk and a missing signature are errors.
func TestProgress(t *testing.T) {
	s, key := stager(t)
	file := archive(t, t.TempDir(), "a", "0.2.0", runtime.GOARCH, program(t, "good"), key)
	src, err := newSource(file, s.Client)
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.readRelease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Threshold = 2
	if _, err := s.Stage(t.Context(), file, false, nil, nil); err == nil || !strings.Contains(err.Error(), "2 are required") {
		t.Errorf("one signature of two: %v", err)
	}
	if err := s.checkSpace(1 << 60); err == nil || !strings.Contains(err.Error(), "MiB are needed") {
		t.Errorf("a full disk: %v", err)
	}
	var told int64
	if err := src.fetchArchive(t.Context(), r, s.Dir+"/x", func(status string, current, total int64) {
		if status != "downloading" || current < told || total != r.Size {
			t.Errorf("%s: %d of %d after %d", status, current, total, told)
		}
		told = current
	}); err != nil || told != r.Size {
		t.Errorf("%d bytes were reported, %v", told, err)
	}
}

// TestHeaderBombs checks that a fetch fails if the response headers do not end.
func TestHeaderBombs(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = out.WriteString("HTTP/1.1 200 OK\r\n" + strings.Repeat("a:\r\n", 1<<20) + "\r\n")
		_ = out.Flush()
	}))
	defer server.Close()
	s, err := newSource(server.URL+"/islet.tar.gz", download.NewClient(time.Now))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.readRelease(t.Context()); err == nil || !strings.Contains(err.Error(), "exceeded") {
		t.Errorf("got %v", err)
	}
}
