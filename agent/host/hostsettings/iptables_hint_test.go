package hostsettings

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

func run(t *testing.T, wanted bool) string {
	t.Helper()
	var log bytes.Buffer
	c := &config.Config{}
	c.Kubelet.MakeIPTablesUtilChains = &wanted
	if err := (Settings{c, slog.New(slog.NewTextHandler(&log, nil))}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

// TestHint checks that the agent creates the chain with the host's iptables, and that a restart with an existing chain succeeds. The agent
// does not create the chain if the configuration disables this.
func TestHint(t *testing.T) {
	const keeps = `f=$(basename $0)-$4-$6
case $5 in
-N) [ ! -e $f ] || { echo "iptables: Chain already exists." >&2; exit 1; }; touch $f;;
-n) f=$(basename $0)-$4-$7; [ -e $f ];;
esac
`
	dir := programs(t, keeps)
	if log := run(t, false); log != "" {
		t.Error(log)
	}
	if _, err := os.Stat(dir + "/calls"); err == nil {
		t.Error("iptables was called although the configuration disables it")
	}
	for range 2 { // the second run is the one after a restart
		if log := run(t, true); log != "" {
			t.Error(log)
		}
	}
	for _, name := range []string{"iptables-mangle-KUBE-IPTABLES-HINT", "ip6tables-mangle-KUBE-IPTABLES-HINT"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestNoHint checks that the agent's start continues if the host's iptables fails or is not installed.
func TestNoHint(t *testing.T) {
	programs(t, "yes Table does not exist | head -n 100000; exit 3\n")
	log := run(t, true)
	if strings.Count(log, "chain=KUBE-IPTABLES-HINT") != 2 || !strings.Contains(log, "exit status 3: Table does not exist") ||
		len(log) > 2000 {
		t.Errorf("%.3000s", log)
	}
	t.Setenv("PATH", t.TempDir())
	if log := run(t, true); log != "" {
		t.Error(log)
	}
}
