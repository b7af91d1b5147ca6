package ctrd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/taskshim"
)

// TestAdoptSilentTasks checks containerd shims that do not respond at the start of the agent. Each of them is called before the timeout of
// another has expired, so their timeouts do not add up.
func TestAdoptSilentTasks(t *testing.T) {
	dir := t.TempDir()
	r := &Runtime{
		log: slog.New(slog.DiscardHandler), dirs: dirs{bundles: dir, tasks: filepath.Join(dir, "t")},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
	}
	called, closed := make(chan bool), make(chan bool, 1)
	const shims = 4
	for i := range shims {
		id := strconv.Itoa(i)
		path := filepath.Join(dir, id+".sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Read(make([]byte, 1))
			called <- true
			io.Copy(io.Discard, conn)
			select {
			case closed <- true:
			default:
			}
		}()
		state, _ := json.Marshal(map[string]any{"address": "unix://" + path, "version": 3}) // cannot fail
		bundle := filepath.Join(dir, id)
		err = errors.Join(os.Mkdir(bundle, 0o755), os.WriteFile(filepath.Join(bundle, taskshim.StateFile), state, 0o600),
			os.WriteFile(filepath.Join(bundle, "task.json"), []byte("{}"), 0o600)) // the shim runs the sandbox's container
		if err != nil {
			t.Fatal(err)
		}
		s := &sandbox{rec: sandboxRecord{ID: id, Tasks: true}}
		if s.tasks, err = r.newTasks(s, ""); err != nil {
			t.Fatal(err)
		}
		r.sandboxes[id] = s
	}
	defer r.closeTasks()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- r.adoptTasks(ctx, map[string]adoptedContainer{}) }()
	for range shims {
		select {
		case <-called:
		case <-closed:
			t.Fatal("the timeout of a shim has expired before all shims were called")
		}
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestUnknownTasksKept checks a containerd shim of which the agent cannot tell whether it is running. The start of the agent fails.
func TestUnknownTasksKept(t *testing.T) {
	dir := t.TempDir()
	r := &Runtime{
		log: slog.New(slog.DiscardHandler), dirs: dirs{bundles: dir, tasks: filepath.Join(dir, "t")},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
	}
	path := filepath.Join(dir, "s")
	listenFull(t, path)
	fillQueue(t, path)
	state, _ := json.Marshal(map[string]any{"address": "unix://" + path, "version": 3}) // cannot fail
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "1"), 0o755),
		os.WriteFile(filepath.Join(dir, "1", taskshim.StateFile), state, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := &sandbox{rec: sandboxRecord{ID: "1", Tasks: true}}
	var err error
	if s.tasks, err = r.newTasks(s, ""); err != nil {
		t.Fatal(err)
	}
	r.sandboxes["1"] = s
	defer r.closeTasks()
	if err := r.adoptTasks(t.Context(), map[string]adoptedContainer{}); !errors.Is(err, unix.EAGAIN) || errors.Is(err, taskshim.ErrGone) {
		t.Error(err)
	}
}
