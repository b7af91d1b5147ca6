package cni

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// daemonPlugin is a CNI plugin that opens CNI_NETNS in the mount namespace of a process, like the daemon of a network plugin in a
// container. Before there is such a process, it opens the path itself.
const daemonPlugin = `#!/bin/sh
set -e
cd DIR
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'; exit;;
DEL) [ ! -e broken ] || exit 1;;
esac
case $CNI_COMMAND$CNI_NETNS in
ADD*|DEL/*) [ ! -e daemon ] || set -- nsenter --mount=/proc/$(cat daemon)/ns/mnt
	"$@" nsenter --net="$CNI_NETNS" true;;
esac
echo $CNI_COMMAND $CNI_NETNS >>calls
echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "x"}], "ips": [{"address": "10.9.0.2/24", "interface": 0}]}'
`

// daemonConf creates the plugin and its configuration.
func (w *world) daemonConf(t *testing.T) func(*Config) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(w.dir, "daemonic"), []byte(strings.ReplaceAll(daemonPlugin, "DIR", w.dir)), 0o755))
	conf := w.conf(t, "10-d.conflist", `{"cniVersion": "1.0.0", "name": "d", "plugins": [{"type": "daemonic"}]}`)
	return func(c *Config) {
		conf(c)
		c.BinDirs = []string{w.dir}
	}
}

// startDaemon starts a process that sees only the mounts that reach its mount namespace.
func (w *world) startDaemon(t *testing.T) {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation=slave", "sh", "-c", "echo; exec cat")
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		check(t, cmd.Wait())
	})
	_, err = bufio.NewReader(out).ReadString('\n') // unshare has moved
	check(t, err)
	check(t, os.WriteFile(filepath.Join(w.dir, "daemon"), fmt.Append(nil, cmd.Process.Pid), 0o644))
}

func (w *world) bound(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "netns"))
	check(t, err)
	for _, e := range entries {
		if !isNamespace(filepath.Join(w.dir, "netns", e.Name())) {
			t.Errorf("%s is not a namespace", e.Name())
		}
		names = append(names, e.Name())
	}
	return names
}

// TestDaemonOpensNamespace checks that a process that already runs in another mount namespace can open the namespaces of new sandboxes. The
// names are unique, and are removed with the sandbox, also by the next agent after this one was killed.
func TestDaemonOpensNamespace(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.daemonConf(t))
	w.pod(t, n, "first")
	w.startDaemon(t)
	second := w.pod(t, n, "second")
	again, err := n.Setup(t.Context(), second.id, second.path, second.cfg)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(second.addrs) {
		t.Errorf("again: %v, %v", again, err)
	}
	if got := fmt.Sprint(w.bound(t)); got != "[islet-first islet-second]" {
		t.Errorf("bound are %s", got)
	}
	check(t, n.Teardown(t.Context(), second.id, second.path, second.cfg))
	n = w.network(t, w.daemonConf(t)) // the agent was killed, and the other sandbox has ended
	check(t, n.Reconcile(t.Context(), nil))
	if got := w.bound(t); len(got) > 0 {
		t.Errorf("left are %q", got)
	}
	calls, err := os.ReadFile(filepath.Join(w.dir, "calls"))
	check(t, err)
	dir := filepath.Join(w.dir, "netns")
	want := fmt.Sprintf("ADD %[1]s/islet-first\nADD %[1]s/islet-second\nDEL %[1]s/islet-second\nDEL %[1]s/islet-first\n", dir)
	if string(calls) != want {
		t.Errorf("the plugin was called with\n%swant\n%s", calls, want)
	}
	w.clean(t)
}

// TestDeleteWithoutName checks that DEL gets the namespace of a sandbox whose name another program has removed, as long as the namespace
// exists, also if an earlier DEL has failed and the runtime's pin is gone since.
func TestDeleteWithoutName(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.daemonConf(t))
	broken, want := filepath.Join(w.dir, "broken"), ""
	remove := func(id, path string, fails bool) {
		t.Helper()
		if err := n.Teardown(t.Context(), id, path, nil); (err != nil) != fails {
			t.Errorf("%s: %v", id, err)
		}
	}
	name := n.plugins.names.path
	pods := map[string]*pod{}
	for _, id := range []string{"unbound", "removed", "failed", "earlier", "gone"} {
		pods[id] = w.pod(t, n, id)
		want += "ADD " + name(id) + "\n"
	}
	w.startDaemon(t)
	check(t, unix.Unmount(name("unbound"), 0)) // leaves an empty file
	for _, id := range []string{"removed", "failed", "earlier", "gone"} {
		check(t, n.plugins.names.unbind(id))
	}
	for _, id := range []string{"unbound", "removed"} {
		remove(id, pods[id].path, false)
		want += "DEL " + name(id) + "\n"
	}
	check(t, os.WriteFile(broken, nil, 0o600))
	remove("failed", pods["failed"].path, true)
	check(t, os.Remove(broken))
	remove("failed", "/gone", false)
	a, err := n.plugins.attachments.read("earlier")
	check(t, err)
	a.NetNS = "/earlier" // an earlier version stored the path of its pin
	check(t, n.plugins.attachments.write(a))
	os.Remove(filepath.Join(w.dir, "daemon")) // cannot open the pin
	remove("earlier", pods["earlier"].path, false)
	remove("gone", "/gone", false)
	want += "DEL " + name("failed") + "\nDEL " + pods["earlier"].path + "\nDEL\n"
	calls, err := os.ReadFile(filepath.Join(w.dir, "calls"))
	check(t, err)
	if string(calls) != want {
		t.Errorf("the plugin was called with\n%swant\n%s", calls, want)
	}
	w.clean(t)
}

// TestNamesOfNamespaces checks sandboxes whose binding is missing, stale or impossible. The path of an attachment of an earlier version
// stays.
func TestNamesOfNamespaces(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.daemonConf(t))
	p := w.pod(t, n, "web")
	store := n.plugins.attachments
	a, err := store.read(p.id)
	check(t, err)
	a.NetNS = p.path // as an earlier version stored it
	check(t, errors.Join(store.write(a), n.plugins.names.unbind(p.id)))
	setup := func(path string) string {
		t.Helper()
		_, err := n.Setup(t.Context(), p.id, path, p.cfg)
		check(t, err)
		a, err := store.read(p.id)
		check(t, err)
		return a.NetNS
	}
	if got := setup(p.path); got != p.path || len(w.bound(t)) != 0 {
		t.Errorf("an attachment of an earlier version has the path %s", got)
	}
	other := w.pod(t, n, "other")
	if got := setup(other.path); got != n.plugins.names.path(p.id) || !n.plugins.names.has(p.id, other.path) {
		t.Errorf("a sandbox with a new namespace has the path %s", got)
	}
	check(t, unix.Unmount(n.plugins.names.path(p.id), 0)) // leaves an empty file, as a reboot may
	if got := setup(other.path); got != n.plugins.names.path(p.id) || !n.plugins.names.has(p.id, other.path) {
		t.Errorf("a sandbox whose namespace was unbound has the path %s", got)
	}
	for _, id := range []string{"web", "other"} {
		check(t, n.Teardown(t.Context(), id, "", p.cfg))
	}
	w.clean(t)

	n = w.network(t, w.daemonConf(t), func(c *Config) { c.NamedDir = filepath.Join(w.dir, "calls", "netns") }) // below a file
	p = w.pod(t, n, "web")
	if got := setup(p.path); got != p.path {
		t.Errorf("without a directory the path is %s", got)
	}
	check(t, n.Teardown(t.Context(), p.id, p.path, p.cfg))
}
