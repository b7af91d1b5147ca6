package hostsettings

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/config"
)

// This helper creates the scripts iptables and ip6tables and returns their directory. The scripts store chains as files, or fail.
func programs(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ncd "+dir+"\necho \"$0 $*\" >> calls\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// This helper runs the settings in a bubble: for the given minutes after the start, and again after each of the rounds. It returns the log.
func run(t *testing.T, wanted bool, minutes int, rounds ...func()) string {
	t.Helper()
	var log bytes.Buffer
	c := &config.Config{}
	c.Kubelet.MakeIPTablesUtilChains = &wanted
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (Settings{Config: c, Log: slog.New(slog.NewTextHandler(&log, nil))}).Run(ctx) }()
		for _, f := range append([]func(){func() {}}, rounds...) {
			f()
			time.Sleep(time.Duration(minutes)*hintInterval + time.Second) // in the bubble's time
			synctest.Wait()
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return log.String()
}

// keeps is a script that stores chains as files.
const keeps = `f=$(basename $0)-$4-$6
case $5 in
-N) [ ! -e $f ] || { echo "iptables: Chain already exists." >&2; exit 1; }; touch $f;;
-n) f=$(basename $0)-$4-$7; [ -e $f ];;
esac
`

// TestHint checks that the agent creates the chain with the host's iptables, and that a restart with an existing chain succeeds. The agent
// does not create the chain if the configuration disables this.
func TestHint(t *testing.T) {
	dir := programs(t, keeps)
	if log := run(t, false, 1); log != "" {
		t.Error(log)
	}
	if _, err := os.Stat(dir + "/calls"); err == nil {
		t.Error("iptables was called although the configuration disables it")
	}
	for range 2 { // the second run is the one after a restart
		if log := run(t, true, 1); log != "" {
			t.Error(log)
		}
	}
	for _, name := range []string{"iptables-mangle-KUBE-IPTABLES-HINT", "ip6tables-mangle-KUBE-IPTABLES-HINT"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestHintIsKept checks that the agent creates the chain again after another program has removed it, and logs this once although the
// program continues. It logs a failure once.
func TestHintIsKept(t *testing.T) {
	dir := programs(t, "[ ! -e $PWD/broken ] || { echo broken >&2; exit 4; }\n"+keeps)
	chain := filepath.Join(dir, "iptables-mangle-"+hintChain)
	remove := func() {
		if err := os.Remove(chain); err != nil {
			t.Error("the chain was not created again:", err)
		}
	}
	log := run(t, true, 1, remove, remove, func() {}, remove)
	if _, err := os.Stat(chain); err != nil || strings.Count(log, "\n") != 2 {
		t.Errorf("%v, and the log is\n%s", err, log)
	}
	broken := filepath.Join(dir, "broken")
	log = run(t, true, 2*int(maxHintDelay/hintInterval), func() {
		if err := os.WriteFile(broken, nil, 0o600); err != nil {
			t.Error(err)
		}
	}, func() {}, func() {
		if err := os.Remove(broken); err != nil {
			t.Error(err)
		}
		remove()
	})
	if _, err := os.Stat(chain); err != nil || strings.Count(log, "\n") != 2 {
		t.Errorf("%v, and the log of the broken programs is\n%s", err, log)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if lines := bytes.Count(calls, []byte("\n")); err != nil || lines > 1500 {
		t.Errorf("%d calls, %v", lines, err)
	}
}

// TestHintIsAligned checks that both programs run in the burst in which an idle node wakes up for its other checks.
func TestHintIsAligned(t *testing.T) {
	dir := programs(t, keeps)
	c, wanted := &config.Config{}, true
	c.Kubelet.MakeIPTablesUtilChains = &wanted
	synctest.Test(t, func(t *testing.T) {
		const late = 37 * time.Second // after the full minute
		time.Sleep(late)              // in the bubble's time
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (Settings{Config: c, Log: slog.New(slog.DiscardHandler)}).Run(ctx) }()
		for _, x := range []struct {
			after time.Duration
			calls int
		}{{0, 4}, {hintInterval - late - 1, 4}, {1, 6}, {hintInterval - 1, 6}, {1, 8}} {
			time.Sleep(x.after) // in the bubble's time
			synctest.Wait()
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			if got := bytes.Count(calls, []byte("\n")); err != nil || got != x.calls {
				t.Errorf("%d calls, not %d, %v", got, x.calls, err)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestNoHint checks that the agent's start continues if the host's iptables fails or is not installed.
func TestNoHint(t *testing.T) {
	programs(t, "yes Table does not exist | head -n 100000; exit 3\n")
	log := run(t, true, 1)
	if strings.Count(log, "chain=KUBE-IPTABLES-HINT") != 2 || !strings.Contains(log, "exit status 3: Table does not exist") ||
		len(log) > 2000 {
		t.Errorf("%.3000s", log)
	}
	t.Setenv("PATH", t.TempDir())
	if log := run(t, true, 1); log != "" {
		t.Error(log)
	}
}
