package setup

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/setuprecord"
)

const (
	kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	zram        = "/dev/zram0"
)

// start returns why an agent of the board cannot start.
func (b *board) start() error {
	b.t.Helper()
	return config.CheckStart(b.Args, b.Dir, nil, b.Host)
}

// TestSwap checks that a board with swap joins a cluster: a new one, and one that had no cluster before.
func TestSwap(t *testing.T) {
	ca := newCA(t)
	for _, files := range [][]string{{joining(ca)}, {head + "name: one\n", joining(ca)}} {
		b := newBoard(t)
		b.Host = machine(zram)
		for _, text := range files {
			b.write(text)
			if out := b.inUse(); !out.Applied || b.start() != nil {
				t.Errorf("%+v: %v", out, b.start())
			}
		}
		if !strings.Contains(b.made("kubelet.yaml"), "failSwapOn: false") {
			t.Error(b.made("kubelet.yaml"))
		}
	}
}

// TestUnfit checks that a file is refused if the agent could not start on the machine afterwards, for every reason, and wherever the
// setting is. Nothing is changed. On a machine without the reason, the same file is applied.
func TestUnfit(t *testing.T) {
	v1 := fstest.MapFS{"proc/swaps": {Data: []byte("Filename\n")}}
	panics := fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": {}, "proc/sys/kernel/panic": {Data: []byte("0\n")}}
	ca := newCA(t)
	for setting, host := range map[string]fs.FS{
		"failSwapOn: true": machine(zram), "failCgroupV1: true": v1, "memorySwap: {swapBehavior: LimitedSwap}": v1,
		"singleProcessOOMKill: false": v1, "protectKernelDefaults: true": panics,
	} {
		field, _, _ := strings.Cut(setting, ":")
		for _, place := range []string{"beside", "image", "flag"} {
			b := newBoard(t)
			b.write(head + "name: one\n")
			b.inUse()
			text := joining(ca)
			switch place {
			case "beside":
				text += "kubeletConfiguration: more.yaml\n"
				must(t, os.WriteFile(filepath.Join(b.boot, "more.yaml"), []byte(kubeletHead+setting+"\n"), 0o644))
			case "image":
				must(t, os.WriteFile(b.Dir+"/kubelet.yaml", []byte(kubeletHead+setting+"\n"), 0o644))
			default:
				if field != "failSwapOn" && field != "protectKernelDefaults" { // the others have no flag
					continue
				}
				b.Args = []string{map[string]string{"failSwapOn": "--fail-swap-on", "protectKernelDefaults": "--protect-kernel-defaults"}[field]}
			}
			b.write(text)
			b.Host = host
			before := contents(t, b.Dir)
			if got := b.refused(); !strings.Contains(got, field) {
				t.Errorf("%s, %s: %s", setting, place, got)
			}
			if after := contents(t, b.Dir); after != before {
				t.Errorf("%s, %s: the files have changed: %s", setting, place, after)
			}
			b.Host = machine("")
			if out := b.inUse(); !out.Applied {
				t.Errorf("%s, %s: not applied on another machine", setting, place)
			}
		}
	}
	b := newBoard(t)
	b.Args = []string{"--pod-cidr=wrong"}
	b.write(head + "name: one\n")
	if got := b.refused(); !strings.Contains(got, "podCIDR") {
		t.Error(got)
	}
}

// TestUnfitLater checks that a board says why its agent cannot start if the machine or a file of the configuration has changed since the
// file was applied. It says so until the agent can start. A configuration that was sent to the node may fit where the files do not.
func TestUnfitLater(t *testing.T) {
	tty, console := terminal(t)
	w := &watched{t: t, tty: tty}
	told := teller{console, filepath.Join(t.TempDir(), "told")}
	b, ca := newBoard(t), newCA(t)
	apply := func() error {
		out, err := b.apply()
		return told.report(out, err, false, io.Discard)
	}
	must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/kubelet.yaml", []byte(kubeletHead+"failSwapOn: true\n"), 0o644))
	b.write(joining(ca))
	must(t, apply())
	w.said()
	b.Host = machine(zram)
	for i := range 2 {
		err := apply()
		said := w.said()
		if err == nil || strings.Contains(said, "failSwapOn") != (i == 0) || strings.Contains(said, "not in use") {
			t.Errorf("run %d: %v, the console has %q", i, err, said)
		}
	}
	if got := setuprecord.Problems(b.State); len(got) != 1 || !strings.Contains(got[0], zram) || strings.Contains(got[0], "not in use") {
		t.Errorf("%q", got)
	}
	own := b.Load
	b.Load = func(args []string) (*config.Config, []config.Notice, error) {
		return own(append(args, "--fail-swap-on=false"))
	}
	must(t, apply())
	if got := setuprecord.Problems(b.State); got != nil {
		t.Errorf("%q", got)
	}
	b.Load, b.Host = own, machine("")
	must(t, os.WriteFile(b.Dir+"/kubelet.yaml", []byte(kubeletHead+"maxPods: -1\n"), 0o644))
	if err := apply(); err == nil || !strings.Contains(fmt.Sprint(err), "maxPods") {
		t.Error(err)
	}
}

// forgetDefault makes the board one on which a former version, which did not set failSwapOn, has applied the file.
func (b *board) forgetDefault() {
	b.t.Helper()
	path := b.Dir + "/kubelet.yaml"
	text := strings.Replace(b.made("kubelet.yaml"), "failSwapOn: false\n", "", 1)
	r, err := load(b.State)
	must(b.t, err)
	m := r.Made[path]
	if text == b.made("kubelet.yaml") || m.Sum == "" {
		b.t.Fatal("the file does not have the setting")
	}
	m.Sum = sum([]byte(text))
	r.Made[path] = m
	must(b.t, os.WriteFile(path, []byte(text), 0o600), r.store(b.State))
}

// TestUnfitRepaired checks that a file in use is applied again if the agent cannot start and could start afterwards: on a board that has
// not joined, and on one that has, which keeps its name and its credentials, with and without its secrets in the file.
func TestUnfitRepaired(t *testing.T) {
	ca := newCA(t)
	cert, key := ca.issue(t, "system:node:kiosk-1")
	const server = "https://192.0.2.1:6443"
	for kind, text := range map[string]string{
		"token": joining(ca), "certificate": certified(server, ca, cert, key),
		"hash": head + "name: one\ncluster: {server: \"" + server + "\", caHash: \"" + ca.hash + "\", token: " + token + "}\n",
	} {
		for _, state := range []string{"new", "joined", "removed"} {
			b := newBoard(t)
			b.write(text)
			name := b.inUse().Name
			if state != "new" {
				r, err := load(b.State)
				must(t, err)
				r.Joined, r.Discovery = true, nil
				must(t, r.store(b.State))
				b.join(ca, server, name)
				if state == "removed" {
					must(t, r.removeSecrets())
				}
			}
			b.forgetDefault()
			credentials := b.made("kubeconfig")
			b.Host = machine(zram)
			for run := range 2 {
				out := b.inUse()
				if out.Applied != (run == 0) || out.Name != name || b.start() != nil || b.made("kubeconfig") != credentials {
					t.Errorf("%s, %s, run %d: %+v, %v", kind, state, run, out, b.start())
				}
			}
			r, err := load(b.State)
			must(t, err)
			if r.Joined != (state != "new") || (r.Discovery != nil) != (kind == "hash" && state == "new") || len(r.Secrets) == 0 {
				t.Errorf("%s, %s: the record has %+v", kind, state, r)
			}
			must(t, r.removeSecrets())
			if left, err := os.ReadFile(b.file()); err != nil || strings.Contains(string(left), token) || b.inUse().Applied {
				t.Errorf("%s, %s: the secrets are not removed: %v", kind, state, err)
			}
		}
	}
}

// TestUnfitBeside checks that a person can repair a board by the file next to islet.yaml, although islet.yaml itself stays the same.
func TestUnfitBeside(t *testing.T) {
	b, ca := newBoard(t), newCA(t)
	more := filepath.Join(b.boot, "more.yaml")
	must(t, os.WriteFile(more, []byte(kubeletHead+"failSwapOn: true\n"), 0o644))
	b.write(joining(ca) + "kubeletConfiguration: more.yaml\n")
	b.inUse()
	b.Host = machine(zram)
	before := contents(t, b.Dir)
	if got := b.refused(); !strings.Contains(got, zram) || contents(t, b.Dir) != before {
		t.Errorf("%s, %s", got, contents(t, b.Dir))
	}
	must(t, os.WriteFile(more, []byte(kubeletHead), 0o644))
	if out := b.inUse(); !out.Applied || b.start() != nil || setuprecord.Problems(b.State) != nil {
		t.Errorf("%+v, %v, %q", out, b.start(), setuprecord.Problems(b.State))
	}
}

// TestMissing checks that a report ends when its cause has ended and no islet.yaml is there, and that an agent that cannot start is
// reported then too.
func TestMissing(t *testing.T) {
	b := newBoard(t)
	missing := filepath.Join(b.boot, "none.yaml")
	without := func() (Result, []string) {
		t.Helper()
		out, err := b.Apply(missing)
		if got := setuprecord.Problems(b.State); (err == nil) != (got == nil) {
			t.Errorf("%v, but the record has %q", err, got)
		}
		return out, setuprecord.Problems(b.State)
	}
	if out, got := without(); out != (Result{}) || got != nil {
		t.Errorf("%+v, %q", out, got)
	}
	if _, err := os.Stat(filepath.Join(b.State, setuprecord.File)); !os.IsNotExist(err) {
		t.Errorf("a machine without islet.yaml has a record: %v", err)
	}

	b.write(head + "nonsense: 1\n")
	b.refused()
	if _, err := b.Apply(missing); err != nil || setuprecord.Problems(b.State) == nil {
		t.Errorf("the mistake of a file that exists is forgotten: %v", err)
	}
	must(t, os.Remove(b.file()))
	without()

	must(t, os.MkdirAll(b.Dir, 0o755), os.WriteFile(b.Dir+"/kubelet.yaml", []byte(kubeletHead+"failSwapOn: true\n"), 0o644))
	b.write(joining(newCA(t)))
	b.inUse()
	for _, remove := range []bool{false, true} {
		b.Host = machine(zram)
		if remove {
			b.refused()
			must(t, os.Remove(b.file()))
		}
		if out, got := without(); len(got) != 1 || !strings.Contains(got[0], zram) || out.File != b.file() || out.Applied {
			t.Errorf("removed %v: %+v, %q", remove, out, got)
		}
		b.Host = machine("")
		if _, got := without(); got != nil {
			t.Errorf("removed %v: %q", remove, got)
		}
	}
}
