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
