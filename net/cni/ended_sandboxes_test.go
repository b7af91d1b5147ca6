package cni

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/net/netns/netnstest"
)

// moodyPlugin fails while the file "fails" exists. While the file "hangs" exists, DEL does not return: nobody writes to the FIFO "never".
// DEL first creates a file in the directory "begun", and GC creates the file "collected".
const moodyPlugin = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'; exit ;;
DEL) : > DIR/begun/$CNI_CONTAINERID; [ ! -e DIR/hangs ] || exec cat DIR/never ;;
GC) : > DIR/collected ;;
esac
[ ! -e DIR/fails ] || { echo '{"cniVersion": "1.0.0", "code": 100, "msg": "the daemon does not run"}'; exit 1; }
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.99.0.2/24"}]}'
`

func (w *world) moodyConf(t *testing.T, version string) func(*Config) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(w.dir, "moody"), []byte(strings.ReplaceAll(moodyPlugin, "DIR", w.dir)), 0o755))
	check(t, os.Mkdir(filepath.Join(w.dir, "begun"), 0o755))
	w.inNode(t, "mkfifo", filepath.Join(w.dir, "never"))
	conf := w.conf(t, "10-moody.conflist", `{"cniVersion": "`+version+`", "name": "moody", "plugins": [{"type": "moody"}]}`)
	return func(c *Config) {
		conf(c)
		c.BinDirs = []string{w.dir}
	}
}

// waitForFiles waits until the names of the files in a directory are accepted.
func waitForFiles(t *testing.T, dir string, accepts func(names []string) bool) {
	t.Helper()
	watch, err := fsnotify.NewWatcher()
	check(t, err)
	defer watch.Close()
	check(t, watch.Add(dir))
	late := time.After(patience)
	for {
		files, err := os.ReadDir(dir)
		check(t, err)
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		if accepts(names) {
			return
		}
		select {
		case <-watch.Events:
		case <-late:
			t.Fatalf("in %s after %s: %v", dir, patience, names)
		}
	}
}

// TestEndedSandboxesHoldUpNothing checks that a start does not wait for a plugin that hangs, however many sandboxes of the former boot it
// must remove. While the command DEL hangs, other pods start. Setup and Teardown of the sandbox itself run the plugin too, until their
// context ends. The removal continues later.
func TestEndedSandboxesHoldUpNothing(t *testing.T) {
	for _, version := range []string{"1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) { testHoldUpNothing(t, version) })
	}
}

func testHoldUpNothing(t *testing.T, version string) {
	w := newWorld(t)
	n := w.network(t, w.moodyConf(t, version))
	var pods []*pod
	for i := range 3 * maxDeletes {
		pods = append(pods, w.pod(t, n, fmt.Sprint("pod", i)))
	}
	hangs := filepath.Join(w.dir, "hangs")
	check(t, os.WriteFile(hangs, nil, 0o600))
	n = w.network(t, func(c *Config) { *c = n.cfg })
	n.startTime = 50 * time.Millisecond
	check(t, n.Reconcile(t.Context(), nil)) // the time of one command is pluginTime
	if left := n.ended.list(); len(left) != len(pods) {
		t.Errorf("%d sandboxes are to be removed, want %d", len(left), len(pods))
	}
	begun := filepath.Join(w.dir, "begun")
	check(t, os.RemoveAll(begun))
	check(t, os.Mkdir(begun, 0o755))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		_ = n.removeEnded(ctx)
	}()
	waitForFiles(t, begun, func(names []string) bool { return slices.Contains(names, pods[0].id) })

	next := w.pod(t, n, "next")
	again, began := pods[0], time.Now()
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := n.Setup(ctx, again.id, again.path, again.cfg)
			return err
		},
		func(ctx context.Context) error { return n.Teardown(ctx, again.id, again.path, again.cfg) },
	} {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(short); err == nil {
			t.Error("removed by a plugin that hangs")
		}
		cancel()
		if !n.ended.has(again.id) {
			t.Error("a sandbox whose removal has failed is forgotten")
		}
	}
	if took := time.Since(began); took > pluginTime/2 {
		t.Errorf("the calls waited %s for the running removal", took)
	}

	stop()
	<-removed
	check(t, os.Remove(hangs))
	addrs, err := n.Setup(t.Context(), again.id, again.path, again.cfg)
	if err != nil || fmt.Sprint(addrs) != fmt.Sprint(again.addrs) || n.ended.has(again.id) {
		t.Errorf("set up again: %v, %v", addrs, err)
	}
	check(t, n.Teardown(t.Context(), again.id, again.path, again.cfg))
	check(t, n.removeEnded(t.Context()))
	if left := n.ended.list(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
	if left := w.bound(t); len(left) != 1 || left[0] != "islet-"+next.id {
		t.Errorf("namespaces are bound: %v", left)
	}
	check(t, n.Teardown(t.Context(), next.id, next.path, next.cfg))
	w.clean(t)
}

// TestGarbageWaits checks that the command GC does not run while pods start, and runs later. If GC waited for these pods, it would block
// all other pods.
func TestGarbageWaits(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.moodyConf(t, "1.1.0"))
	collected := func() bool {
		_, err := os.Stat(filepath.Join(w.dir, "collected"))
		return err == nil
	}
	n.ended.setGarbage(true)
	n.operations.RLock()
	check(t, n.removeEnded(t.Context()))
	n.operations.RUnlock()
	if collected() || !n.ended.hasWork() {
		t.Error("GC ran beside another operation, or is not due any more")
	}
	check(t, n.removeEnded(t.Context()))
	if !collected() || n.ended.hasWork() {
		t.Error("GC did not run, or is due again")
	}
}

// TestFailedSetupIsRemovedLater checks that a sandbox whose set-up and removal have failed is removed when the plugin works again, although
// no pod and no record of the runtime refers to it, and that it is not removed if it was set up again. The same is true of a sandbox whose
// teardown has failed.
func TestFailedSetupIsRemovedLater(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.moodyConf(t, "1.0.0"))
	n.ended.firstRetry = time.Millisecond
	fails := filepath.Join(w.dir, "fails")
	_, path := netnstest.New(t)
	setUp := func(id string) {
		t.Helper()
		if _, err := n.Setup(t.Context(), id, path, nil); err == nil || !strings.Contains(err.Error(), "the daemon does not run") {
			t.Fatal(err)
		}
	}
	torn := w.pod(t, n, "torn")
	check(t, os.WriteFile(fails, nil, 0o600))
	setUp("gone")
	setUp("again")
	if err := n.Teardown(t.Context(), torn.id, torn.path, torn.cfg); err == nil {
		t.Error("torn down although the plugin fails")
	}
	if err := n.removeEnded(t.Context()); err == nil {
		t.Error("removed although the plugin fails")
	}
	check(t, os.Remove(fails))
	if _, err := n.Setup(t.Context(), "again", path, nil); err != nil {
		t.Fatal(err)
	}
	onlyAgain := func(names []string) bool { return len(names) == 1 && names[0] == "again.json" }
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { done <- n.Run(ctx) }()
	waitForFiles(t, n.plugins.attachments.dir, onlyAgain)

	check(t, os.WriteFile(fails, nil, 0o600)) // while Run has nothing to do
	setUp("late")
	check(t, os.Remove(fails))
	waitForFiles(t, n.plugins.attachments.dir, onlyAgain)
	stop()
	check(t, <-done)
	if left := w.bound(t); len(left) != 1 || left[0] != "islet-again" {
		t.Errorf("namespaces are bound: %v", left)
	}
}
