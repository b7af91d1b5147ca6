package cni

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/net/netns/netnstest"
)

// moodyPlugin fails while the file "fails" exists. While the file "hangs" exists, DEL does not return: nobody writes to the FIFO "never".
const moodyPlugin = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'; exit ;;
DEL) [ ! -e DIR/hangs ] || exec cat DIR/never ;;
esac
[ ! -e DIR/fails ] || { echo '{"cniVersion": "1.0.0", "code": 100, "msg": "the daemon does not run"}'; exit 1; }
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.99.0.2/24"}]}'
`

func (w *world) moodyConf(t *testing.T) func(*Config) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(w.dir, "moody"), []byte(strings.ReplaceAll(moodyPlugin, "DIR", w.dir)), 0o755))
	conf := w.conf(t, "10-moody.conflist", `{"cniVersion": "1.0.0", "name": "moody", "plugins": [{"type": "moody"}]}`)
	return func(c *Config) {
		conf(c)
		c.BinDirs = []string{w.dir}
	}
}

// TestEndedSandboxesHoldUpNothing checks that a start does not wait for a plugin that hangs, however many sandboxes of the former boot it
// must remove, and that pods start meanwhile. Their removal goes on later.
func TestEndedSandboxesHoldUpNothing(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.moodyConf(t))
	var names []string
	for i := range 3 * maxDeletes {
		names = append(names, fmt.Sprint("pod", i))
		w.pod(t, n, names[i])
	}
	run := func(name string, args ...string) { w.inNode(t, name, args...) }
	run("mkfifo", filepath.Join(w.dir, "never"))
	hangs := filepath.Join(w.dir, "hangs")
	check(t, os.WriteFile(hangs, nil, 0o600))
	n = w.network(t, func(c *Config) { *c = n.cfg })
	n.startTime = 50 * time.Millisecond
	check(t, n.Reconcile(t.Context(), nil)) // the time of one command is pluginTime
	if left := n.ended.list(true); len(left) != len(names) {
		t.Errorf("%d sandboxes are to be removed, want %d", len(left), len(names))
	}
	next := w.pod(t, n, "next")
	check(t, os.Remove(hangs))
	check(t, n.removeEnded(t.Context(), true))
	if left := n.ended.list(true); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
	if left := w.bound(t); len(left) != 1 || left[0] != "islet-"+next.id {
		t.Errorf("namespaces are bound: %v", left)
	}
	check(t, n.Teardown(t.Context(), next.id, next.path, next.cfg))
	w.clean(t)
}

// TestFailedSetupIsRemovedLater checks that a sandbox whose set-up and removal have failed is removed as soon as the plugin works again,
// although no pod and no record of the runtime refers to it, and that it is not removed if it was set up again.
func TestFailedSetupIsRemovedLater(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.moodyConf(t))
	fails := filepath.Join(w.dir, "fails")
	check(t, os.WriteFile(fails, nil, 0o600))
	_, path := netnstest.New(t)
	for _, id := range []string{"gone", "again"} {
		if _, err := n.Setup(t.Context(), id, path, nil); err == nil || !strings.Contains(err.Error(), "the daemon does not run") {
			t.Fatal(err)
		}
	}
	if err := n.removeEnded(t.Context(), true); err == nil {
		t.Error("removed although the plugin fails")
	}
	check(t, os.Remove(fails))
	if _, err := n.Setup(t.Context(), "again", path, nil); err != nil {
		t.Fatal(err)
	}
	watch, err := fsnotify.NewWatcher()
	check(t, err)
	defer watch.Close()
	check(t, watch.Add(n.plugins.attachments.dir))
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- n.Run(ctx) }()
	for {
		ids, err := n.plugins.attachments.listIDs()
		check(t, err)
		if len(ids) == 1 {
			break
		}
		select {
		case <-watch.Events:
		case <-time.After(patience):
			t.Fatal("the sandbox is not removed")
		}
	}
	stop()
	check(t, <-done)
	if left := w.bound(t); len(left) != 1 || left[0] != "islet-again" {
		t.Errorf("namespaces are bound: %v", left)
	}
}
