package backups

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/edge/backup"
)

// envKill is the environment variable with the killing that a child process carries out.
const envKill = "ISLET_TEST_KILL_RESTORE"

// A killing contains the arguments of islet restore, and the step at which the process kills itself.
type killing struct {
	Step int // from 1
	Args []string
}

// die restores, and kills this process at the step.
func (k killing) die(t *testing.T) {
	steps := 0
	code := Main(t.Context(), "restore", k.Args, Env{
		Stdin: strings.NewReader(""), Stdout: os.Stdout, Stderr: os.Stderr, ServiceFlags: func(fs.FS) ([]string, bool) { return nil, false },
		Now: func() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) },
		Step: func(string) error {
			if steps++; steps == k.Step {
				return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("this process lives"))
			}
			return nil
		},
	})
	os.Exit(code)
}

// kill runs a restore in a process that ends at a step. It returns the output, and false if the restore was complete before.
func (d *desk) kill(step int, args ...string) (string, bool) {
	d.Helper()
	text, err := json.Marshal(killing{step, append(args, d.flags...)})
	if err != nil {
		d.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledRestore$")
	cmd.Env = append(os.Environ(), envKill+"="+string(text))
	out, err := cmd.CombinedOutput()
	failed := (*exec.ExitError)(nil)
	if errors.As(err, &failed) && failed.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return string(out), true
	}
	if err != nil {
		d.Fatalf("%v: %s", err, out)
	}
	return string(out), false
}

// names returns the paths of the files, without the lock, which may be left.
func (d *desk) names() []string {
	d.Helper()
	files := d.files()
	delete(files, d.dir+"/state/lock")
	return slices.Sorted(maps.Keys(files))
}

// TestKilledRestore kills a restore with --state-dir at each of its steps, on an empty board and over another node. The output names the
// directory. An agent without the flag does not change the directory. The next agent with the flag finds the whole node if the restore was
// decided, and otherwise the files that the board had before.
func TestKilledRestore(t *testing.T) {
	if text := os.Getenv(envKill); text != "" {
		var k killing
		if err := json.Unmarshal([]byte(text), &k); err != nil {
			t.Fatal(err)
		}
		k.die(t)
	}
	t.Parallel()
	d := newDesk(t)
	key, err := os.ReadFile(d.dir + "/state/store.key")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.make("state/configuration.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(d.key), "f")
	d.run(0, "backup", file, "--to="+d.to)
	for name, more := range map[string][]string{"an empty board": nil, "over another node": {"--set-aside"}} {
		prepare := func() []string {
			d.empty()
			if more != nil {
				if err := os.WriteFile(d.make("state/store.key"), []byte("another key"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			return d.names()
		}
		args := append([]string{file, "--key=" + d.key}, more...)
		prepare()
		if _, killed := d.kill(0, args...); killed {
			t.Fatal("the restore was killed")
		}
		whole := d.names()
		decided := 0
		for step := 1; ; step++ {
			before := prepare()
			out, killed := d.kill(step, args...)
			if !strings.Contains(out, "--state-dir="+d.dir+"/state") {
				t.Errorf("%s, step %d: the state directory is not named: %s", name, step, out)
			}
			left, want := d.names(), before
			if decided > 0 || backup.IsDecided(d.dir+"/state") { // each later step comes after the decision
				decided++
				want = whole
			}
			if err := Resume([]string{"--state-dir=" + t.TempDir()}); err != nil || !slices.Equal(d.names(), left) {
				t.Errorf("%s, step %d: an agent of another directory: %v", name, step, err)
			}
			if err := Resume(d.flags); err != nil {
				t.Errorf("%s, step %d: %v", name, step, err)
			}
			now, err := os.ReadFile(d.dir + "/state/store.key")
			if got := d.names(); !slices.Equal(got, want) || (slices.Equal(want, whole) && (err != nil || !bytes.Equal(now, key))) {
				t.Errorf("%s, step %d: the board has %q instead of %q (%v)", name, step, got, want, err)
			}
			if !killed {
				if step < 6 || decided < 3 {
					t.Errorf("%s: %d steps, %d of them decided", name, step, decided)
				}
				break
			}
		}
	}
}
