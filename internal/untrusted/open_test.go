package untrusted_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// createTree creates a root directory with a file of every kind, and a secret file next to it.
func createTree(t *testing.T) (root string) {
	t.Helper()
	top := t.TempDir()
	root = filepath.Join(top, "root")
	at := func(name string) string { return filepath.Join(root, name) }
	must(t, os.MkdirAll(at("etc/deep"), 0o755), os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o600),
		os.WriteFile(at("etc/plain"), []byte("plain"), 0o600), unix.Mkfifo(at("etc/fifo"), 0o600),
		os.WriteFile(at("secret"), []byte("inside"), 0o600))
	for link, target := range map[string]string{
		"etc/link": "plain", "etc/absolute": "/etc/plain", "etc/out": "../../../secret", "etc/proc": "/proc/self/environ",
		"dirs": "etc", "top": "/", "etc/loop": "loop", "etc/parent": "deep/../../etc/plain", "etc/nowhere": "missing", "etc/toFifo": "fifo",
	} {
		must(t, os.Symlink(target, at(link)))
	}
	return root
}

func TestOpen(t *testing.T) {
	root := createTree(t)
	const gone, irregular, loop = "missing", "irregular", "loop"
	for name, want := range map[string][2]string{ // path below root, with its content or the kind of the error
		"etc/plain":                {"plain", "plain"},
		"/etc//./plain":            {"plain", "plain"},
		"etc/link":                 {irregular, "plain"},
		"etc/absolute":             {irregular, "plain"},
		"etc/parent":               {irregular, "plain"},
		"etc/out":                  {irregular, "inside"}, // resolved as if root were "/"
		"etc/proc":                 {irregular, gone},
		"etc/nowhere":              {irregular, gone},
		"etc/missing":              {gone, gone},
		"missing/plain":            {gone, gone},
		"dirs/plain":               {loop, "plain"},
		"top/etc/plain":            {loop, "plain"},
		"etc/loop":                 {irregular, loop},
		"etc/fifo":                 {irregular, irregular},
		"etc/toFifo":               {irregular, irregular},
		"etc":                      {irregular, irregular},
		"":                         {irregular, irregular},
		"etc/plain/x":              {"not a directory", "not a directory"},
		"../secret":                {"contains ..", "inside"},
		"a\x00b":                   {"invalid", "invalid"},
		strings.Repeat("x/", 3000): {"too long", "too long"},
	} {
		for i, read := range []func(string, string, int64) ([]byte, error){untrusted.ReadFile, untrusted.ReadInRoot} {
			b, err := read(root, name, 10)
			got := string(b)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				got = gone
			case errors.Is(err, untrusted.ErrNotRegular):
				got = irregular
			case errors.Is(err, unix.ELOOP):
				got = loop
			case err != nil && strings.Contains(err.Error(), want[i]):
				got = want[i]
			}
			if got != want[i] {
				t.Errorf("%d %.20q: %q, %v; want %s", i, name, b, err, want[i])
			}
		}
	}
}

// TestOpenAcrossMounts checks that the callback gets the root of each mount that the walk enters, also through a link, and no other
// directory. A link leads to the root of the walk, and not to that of the host.
func TestOpenAcrossMounts(t *testing.T) {
	top := createTree(t)
	must(t, os.Symlink("/proc/uptime", filepath.Join(top, "etc/uptime")))
	const proc = unix.PROC_SUPER_MAGIC
	for _, c := range []struct {
		root, name string
		entered    bool // whether the last mount is /proc
	}{
		{"/", "proc/uptime", true},
		{"/", filepath.Join(top, "etc/uptime"), true},
		{"/", filepath.Join(top, "etc/absolute"), false}, // leads to the host's /etc
		{top, "etc/absolute", false},
		{top, "etc/proc", false},
	} {
		var last int64
		f, err := untrusted.OpenAcrossMounts(c.root, c.name, func(path string) {
			var st unix.Statfs_t
			must(t, unix.Statfs(path, &st))
			if mount, err := os.Readlink(path); err != nil || c.root == top || last == proc {
				t.Errorf("%s in %s enters %s: %v", c.name, c.root, mount, err)
			}
			last = int64(st.Type)
		})
		if err == nil {
			must(t, f.Close())
		}
		if last == proc != c.entered || c.entered && err != nil {
			t.Errorf("%s in %s: the last mount is %x, %v", c.name, c.root, last, err)
		}
	}
}

// TestDevice checks that a device is not opened, because opening a device may have an effect.
func TestDevice(t *testing.T) {
	if _, err := untrusted.Open("/dev", "null"); !errors.Is(err, untrusted.ErrNotRegular) || !strings.Contains(err.Error(), "device") {
		t.Errorf("got %v", err)
	}
}

func TestOpenDir(t *testing.T) {
	root := createTree(t)
	for name, opens := range map[string]bool{
		"etc": true, "etc/deep": true, "": true, ".": true, "dirs": false, "dirs/deep": false, "top": false, "etc/plain": false, "etc/fifo": false, "missing": false, "../root": false,
	} {
		d, err := untrusted.OpenDir(root, name)
		if (err == nil) != opens {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			must(t, d.Close())
		}
	}
}

func TestLimit(t *testing.T) {
	root := createTree(t)
	if b, err := untrusted.ReadFile(root, "etc/plain", 5); string(b) != "plain" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := untrusted.ReadFile(root, "etc/plain", 4); !errors.Is(err, untrusted.ErrTooLarge) {
		t.Errorf("%q, %v", b, err)
	}
	must(t, os.Truncate(filepath.Join(root, "etc/plain"), 1<<40))
	if b, err := untrusted.ReadInRoot(root, "etc/plain", 10<<20); !errors.Is(err, untrusted.ErrTooLarge) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if b, err := untrusted.ReadFile("/proc", "self/status", 1<<20); err == nil || b != nil {
		t.Errorf("a symlink was followed: %q", b)
	}
	if b, err := untrusted.ReadInRoot("/proc", "self/status", 10); !errors.Is(err, untrusted.ErrTooLarge) { // its reported size is 0
		t.Errorf("%q, %v", b, err)
	}
}

func TestWrite(t *testing.T) {
	root := createTree(t)
	const flags = os.O_CREATE | os.O_WRONLY
	for _, c := range []struct {
		name string
		flag int
		want string // content after the call; if empty, the call must fail
	}{
		{"etc/new", flags, "x"},
		{"etc/new", flags | os.O_APPEND, "xx"},
		{"etc/new", flags | os.O_EXCL, ""},
		{"etc/plain", flags | os.O_TRUNC, "x"},
		{"etc/link", flags, ""},
		{"etc/nowhere", flags, ""},
		{"etc/out", flags | os.O_TRUNC, ""},
		{"dirs/new", flags, ""},
		{"missing/new", flags, ""},
		{"etc/fifo", flags, ""},
		{"../new", flags, ""},
	} {
		f, err := untrusted.OpenFile(root, c.name, c.flag, 0o640)
		if (err != nil) != (c.want == "") {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			continue
		}
		_, err = io.WriteString(f, "x")
		must(t, err, f.Close())
		if b, err := untrusted.ReadFile(root, c.name, 10); string(b) != c.want {
			t.Errorf("%s: %q, %v", c.name, b, err)
		}
	}
	if st, err := os.Stat(filepath.Join(root, "etc/new")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "../secret")); string(b) != "secret" {
		t.Errorf("outside of the root: %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(root, "etc/missing")); err == nil {
		t.Error("a file was made through a symlink")
	}
}

// TestRace checks that a symlink that is created and removed repeatedly is never followed.
func TestRace(t *testing.T) {
	root := createTree(t)
	at := func(name string) string { return filepath.Join(root, name) }
	must(t, os.Mkdir(at("d"), 0o755), os.WriteFile(at("d/secret"), []byte("inside"), 0o600), os.Symlink("..", at("evil")))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				unix.Renameat2(unix.AT_FDCWD, at("d"), unix.AT_FDCWD, at("evil"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for range 2000 {
		b, err := untrusted.ReadFile(root, "d/secret", 10)
		if err == nil && string(b) != "inside" || err != nil && !errors.Is(err, unix.ELOOP) {
			t.Errorf("%q, %v", b, err)
		}
		if b, _ := untrusted.ReadInRoot(root, "d/secret", 10); len(b) > 0 && string(b) != "inside" {
			t.Errorf("in the root: %q", b)
		}
	}
	close(stop)
	<-done
}

// FuzzOpen opens files with any name and any symlink target. It checks that no file outside of root is read and no descriptor is leaked.
func FuzzOpen(f *testing.F) {
	f.Add("etc/x", "../../../secret")
	f.Add("x/../x/secret", "/etc/../..")
	f.Add("x", "x")
	f.Fuzz(func(t *testing.T, name, target string) {
		root := createTree(t)
		if os.Symlink(target, filepath.Join(root, "etc/x")) != nil {
			return
		}
		before := descriptors(t)
		for _, read := range []func(string, string, int64) ([]byte, error){untrusted.ReadFile, untrusted.ReadInRoot} {
			if b, _ := read(root, name, 100); string(b) == "secret" {
				t.Errorf("%q with %q leads outside", name, target)
			}
		}
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors, before there were %d", after, before)
		}
	})
}

func descriptors(t *testing.T) int {
	l, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(l)
}
