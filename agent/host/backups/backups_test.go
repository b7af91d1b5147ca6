package backups

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/edge/backup"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/edge/keyfile/tpmtest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
)

// A desk runs the commands for a node in a directory.
type desk struct {
	*testing.T
	dir   string
	key   string // file of the private key
	to    string
	flags []string // of the agent
	in    io.Reader
	tpm   string
	errs  *os.File // the standard error; nil for one whose content is part of the output
	start string   // the command line that starts the service
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, dir: t.TempDir(), key: filepath.Join(t.TempDir(), "key")}
	d.flags = []string{"--state-dir=" + d.dir + "/state", "--run-dir=" + d.dir + "/run", "--root-dir=" + d.dir + "/kubelet", "--hostname-override=edge"}
	d.to = strings.TrimSpace(d.run(0, "backup", "--new-key="+d.key))
	s, err := store.Open(t.Context(), d.make("state/islet.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.MakeRecipient()
	if err := errors.Join(err, s.SetMeta(t.Context(), "bundle.seen", `{"highest":{"kiosk":3}}`), s.Close()); err != nil {
		t.Fatal(err)
	}
	return d
}

// make returns a path below the directory, after it has made the directories.
func (d *desk) make(path string) string {
	d.Helper()
	path = filepath.Join(d.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		d.Fatal(err)
	}
	return path
}

// run runs a command with the flags of the agent, and returns its output.
func (d *desk) run(code int, verb string, args ...string) string {
	d.Helper()
	var out, errs bytes.Buffer
	stderr := io.Writer(&errs)
	if d.errs != nil {
		stderr = d.errs
	}
	got := Main(d.Context(), verb, args, Env{
		Ask:   func(string, url.Values) (io.ReadCloser, bool, error) { return nil, true, fs.ErrNotExist },
		Stdin: d.in, Stdout: &out, Stderr: stderr, Version: "1.2.3", Now: time.Now, ServiceFlags: func(fs.FS) ([]string, bool) { return d.flags, true },
		StartCommand: func() string { return d.start },
		Load: func(args []string) (*config.Config, []config.Notice, error) {
			dirs, node, err := config.Locate(args)
			c := &config.Config{Dirs: dirs, Node: config.Node{Name: node}}
			c.Edge.TPM.Device = d.tpm
			return c, nil, err
		},
	})
	if got != code {
		d.Errorf("islet %s %q: code %d instead of %d\n%s%s", verb, args, got, code, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

// empty removes the node.
func (d *desk) empty() {
	d.Helper()
	if err := os.RemoveAll(d.dir); err != nil {
		d.Fatal(err)
	}
}

func (d *desk) files() map[string]int64 {
	d.Helper()
	out := map[string]int64{}
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !e.IsDir() {
			fi, err := e.Info()
			if err != nil {
				return err
			}
			out[path] = fi.Size()
		}
		return err
	})
	if err != nil {
		d.Fatal(err)
	}
	return out
}

// TestCommands backs up a stopped node to a file and to the standard output, and restores it.
func TestCommands(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	key, err := os.ReadFile(d.dir + "/state/store.key")
	if err != nil {
		t.Fatal(err)
	}
	office := filepath.Dir(d.key)
	file := office + "/edge.backup"
	if err := os.WriteFile(office+"/recipients", []byte("# the office\n"+d.to+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ seal, open string }{
		"key":  {"--to=" + d.to, "--key=" + d.key},
		"file": {"--to=" + office + "/recipients", "--key=" + d.key},
	} {
		d.run(0, "backup", file, c.seal) // it replaces the backup before
		if out := d.run(0, "backup", "--verify", file, c.open); !strings.Contains(out, "kiosk number 3") || !strings.Contains(out, "edge") {
			t.Errorf("%s: %s", name, out)
		}
		if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	piped := d.run(0, "backup", "-", "--to", d.to)
	d.in = strings.NewReader(piped)
	d.run(0, "backup", "--verify", "-", "--key", d.key)
	d.in = strings.NewReader(piped[:len(piped)-10])
	d.run(1, "backup", "--verify", "-", "--key", d.key)

	d.run(1, "restore", file, "--key="+d.key) // the node is there
	d.empty()
	d.run(0, "restore", file, "--key="+d.key, "--dry-run")
	other := office + "/other"
	d.run(0, "backup", "--new-key="+other)
	d.run(1, "restore", file, "--key="+other)
	if left := d.files(); len(left) > 0 {
		t.Errorf("restores that restore nothing leave %v", left)
	}
	if _, err := os.Stat(d.dir + "/state"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory was made: %v", err)
	}
	d.start = "systemctl enable --now kubelet"
	if out := d.run(0, "restore", file, "--key="+d.key, "--bundle-number=kiosk=5"); !strings.Contains(out, "("+d.start+")") {
		t.Errorf("the command that starts the service is missing: %s", out)
	}
	if now, err := os.ReadFile(d.dir + "/state/store.key"); err != nil || !bytes.Equal(now, key) {
		t.Errorf("the key: %v", err)
	}
	text, _, err := store.ReadMeta(t.Context(), d.dir+"/state/islet.db", "bundle.seen")
	if err != nil || !strings.Contains(text, `"kiosk":5`) {
		t.Errorf("%s, %v", text, err)
	}
	d.run(0, "backup", file, "--to="+d.to) // of the restored node
}

// TestUsage checks arguments that are wrong, and files that are not replaced.
func TestUsage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, args := range [][]string{
		{"backup"}, {"backup", "f"}, {"backup", "f", "g", "--to=" + d.to}, {"backup", "f", "--to"}, {"restore", "f", "--key"},
		{"backup", "f", "--key=" + d.key, "--to=" + d.to}, {"backup", "--verify", "f"}, {"backup", "--verify", "f", "--key=k", "--to=x"},
		{"backup", "--new-key=x", "f"}, {"restore", "f"}, {"restore"}, {"restore", "f", "--key=a", "--to=b"},
		{"restore", "f", "--key=a", "--bundle-number=kiosk"}, {"restore", "f", "--key=a", "--bundle-number=kiosk=-1"},
		{"restore", "f", "--key=a", "--no-such-flag"}, {"restore", "-", "--key=a", "--recovery"},
	} {
		d.run(2, args[0], args[1:]...)
	}
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"backup", mine, "--to=" + d.to}, {"backup", "--new-key=" + mine}, {"backup", "/no/such/dir/f", "--to=" + d.to}, {"backup", mine + "2", "--to=age1x"},
		{"restore", mine, "--key=" + d.key}, {"restore", mine + "2", "--key=" + d.key}, {"restore", mine, "--key=" + mine},
	} {
		d.run(1, args[0], args[1:]...)
	}
	if data, err := os.ReadFile(mine); err != nil || string(data) != "mine" {
		t.Errorf("%q, %v", data, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(mine)); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestLocked backs up and restores while an agent that does not answer has the state directory.
func TestLocked(t *testing.T) {
	t.Parallel() // each attempt waits for the end of the agent
	d := newDesk(t)
	file := filepath.Join(filepath.Dir(d.key), "f")
	d.run(0, "backup", file, "--to="+d.to)
	locks, err := process.Lock(d.dir + "/state")
	if err != nil {
		t.Fatal(err)
	}
	before := d.files()
	d.run(1, "backup", file+"2", "--to="+d.to)
	d.run(1, "restore", file, "--key="+d.key, "--set-aside")
	if now := d.files(); !maps.Equal(now, before) {
		t.Errorf("%v instead of %v", now, before)
	}
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSealedKey restores a node whose key is sealed to a TPM. The same TPM opens the key. Another board needs the recovery key, and without
// it, nothing is restored.
func TestSealedKey(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var end func()
	state := t.TempDir()
	d.tpm, end = tpmtest.Start(t, state)
	place := keyfile.Place{Dir: d.dir + "/state", TPM: d.tpm}
	var recovery string
	if err := place.Seal(keyfile.Request{Show: func(key string) error { recovery = key; return nil }}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(d.key), "f")
	d.run(0, "backup", file, "--to="+d.to)
	if out := d.run(0, "backup", "--verify", file, "--key="+d.key); !strings.Contains(out, "recovery key") || !strings.Contains(out, "age1") {
		t.Error(out)
	}
	d.empty()
	d.run(0, "restore", file, "--key="+d.key, "--tpm="+d.tpm)
	if !place.IsSealed() {
		t.Error("the key is plain on its own board")
	}
	end()
	d.empty()
	if out := d.run(1, "restore", file, "--key="+d.key, "--tpm="+d.tpm); !strings.Contains(out, "--recovery") {
		t.Error(out)
	}
	if left := d.files(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	d.in = strings.NewReader("wrong-wrong")
	d.run(1, "restore", file, "--key="+d.key, "--tpm="+d.tpm, "--recovery")
	d.in = strings.NewReader(recovery + "\n")
	if out := d.run(0, "restore", file, "--key="+d.key, "--tpm="+d.tpm, "--recovery"); !strings.Contains(out, "islet key seal") {
		t.Error(out)
	}
	if _, err := place.Read(); err != nil || place.IsSealed() {
		t.Errorf("the key: %v", err)
	}
}

// TestResume starts an agent after a restore that was interrupted before it was decided.
func TestResume(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if err := os.WriteFile(d.make("state/.restore/db/islet.db"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Resume(d.flags), Resume([]string{"--help"})); err != nil || backup.Pending(d.dir+"/state") {
		t.Errorf("%v", err)
	}
}

// slow is an archive that pauses. The first read signals that the file exists.
type slow struct {
	io.Reader
	began  chan struct{}
	resume chan struct{}
}

func (s *slow) Read(b []byte) (int, error) {
	if s.began != nil {
		close(s.began)
		s.began = nil
		<-s.resume
	}
	return s.Reader.Read(b)
}

// TestTwoAtOnce writes two backups to the same file at the same time. Only one succeeds. The file of a process that was killed is replaced.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	file := filepath.Join(filepath.Dir(d.key), "f")
	next := filepath.Join(filepath.Dir(file), ".f.new")
	d.run(0, "backup", file, "--to="+d.to)
	opened := d.open()
	data, err := io.ReadAll(opened)
	if err := errors.Join(err, opened.Close()); err != nil {
		t.Fatal(err)
	}
	plain := func(w io.Writer) (io.WriteCloser, error) { return nopWriteCloser{w}, nil }
	for name, disturb := range map[string]func(){
		"a lock": func() {
			if _, err := writeFile(file, bytes.NewReader(data), plain); !errors.As(err, new(busyError)) {
				t.Errorf("the second backup: %v", err)
			}
		},
		"without locks": func() { // the second process has removed the file of the first one
			if err := errors.Join(os.Remove(next), os.WriteFile(next, []byte("second"), 0o600)); err != nil {
				t.Error(err)
			}
		},
	} {
		d.run(0, "backup", file, "--to="+d.to) // a file that is left has no process
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		archive := &slow{bytes.NewReader(data), make(chan struct{}), make(chan struct{})}
		began, ended := archive.began, make(chan error, 1)
		go func() {
			_, err := writeFile(file, archive, plain)
			ended <- err
		}()
		<-began
		disturb()
		close(archive.resume)
		isFirst := name == "a lock"
		if err := <-ended; (err == nil) != isFirst {
			t.Errorf("%s: the first backup: %v", name, err)
		}
		if now, err := os.ReadFile(file); err != nil || bytes.Equal(now, before) == isFirst {
			t.Errorf("%s: the file: %v", name, err)
		}
		if left, err := os.ReadFile(next); (err != nil) != isFirst {
			t.Errorf("%s: %q, %v", name, left, err)
		}
		if err := os.Remove(file); err != nil { // what was written is not sealed, so it would not be replaced
			t.Fatal(err)
		}
	}
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

// TestSlowReader opens the archive of a stopped agent. The agent may start before the archive is read.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.run(0, "backup", filepath.Join(filepath.Dir(d.key), "f"), "--to="+d.to) // makes the lock file
	archive := d.open()
	locks, err := process.Lock(d.dir + "/state")
	if err != nil {
		t.Fatal(err)
	}
	_, err = backup.Copy(io.Discard, archive)
	if err := errors.Join(err, archive.Close(), locks.Close()); err != nil {
		t.Error(err)
	}
}

// open opens the archive of the stopped agent.
func (d *desk) open() io.ReadCloser {
	d.Helper()
	archive, err := Env{
		Ask:          func(string, url.Values) (io.ReadCloser, bool, error) { return nil, true, fs.ErrNotExist },
		ServiceFlags: func(fs.FS) ([]string, bool) { return d.flags, true },
		Load: func(args []string) (*config.Config, []config.Notice, error) {
			dirs, node, err := config.Locate(args)
			return &config.Config{Dirs: dirs, Node: config.Node{Name: node}}, nil, err
		},
	}.open(d.Context(), &options{})
	if err != nil {
		d.Fatal(err)
	}
	return archive
}
