package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/islet-edge/islet/agent/api"
	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/doctor"
)

// Doctor examines this machine for an agent with the flags in args, and needs
// none to run. Besides the agent's flags it takes --all, which prints what is
// in order too, and --output=json. It returns the exit code: 1 when something
// keeps pods from running.
func Doctor(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var all, asJSON bool
	var rest []string
	for _, arg := range args {
		switch arg {
		case "--all", "-a":
			all = true
		case "--output=json", "-ojson":
			asJSON = true
		default:
			rest = append(rest, arg)
		}
	}
	findings := []doctor.Finding{{ID: "configuration", Severity: doctor.OK, What: "the configuration is valid"}}
	cfg, _, err := config.Load(rest)
	if err != nil {
		findings[0] = doctor.Finding{ID: "configuration", Severity: doctor.Error,
			What: strings.ReplaceAll(err.Error(), "\n", "; "), Advice: "mend it; the rest of this report is for the defaults"}
		if cfg, _, err = config.Load([]string{"--hostname-override=node"}); err != nil {
			fmt.Fprintln(stderr, "islet: doctor:", err)
			return 1
		}
	}
	findings = append(findings, doctor.Check(ctx, doctorInput(cfg), doctor.Real())...)
	if asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(findings)
	} else {
		err = doctor.Write(stdout, findings, all)
	}
	if err != nil {
		fmt.Fprintln(stderr, "islet: doctor:", err)
		return 1
	}
	return doctor.ExitCode(findings)
}

func doctorInput(cfg *config.Config) doctor.Input {
	k := &cfg.Kubelet
	in := doctor.Input{
		Host: os.DirFS("/"), RootDir: cfg.Dirs.Root, StateDir: cfg.Dirs.State, RunDir: cfg.Dirs.Run,
		OCIRuntime: cfg.Edge.OCIRuntime, SystemdCgroup: k.CgroupDriver == "systemd",
		FailSwapOn: *k.FailSwapOn, FailCgroupV1: *k.FailCgroupV1, ResolvConf: *k.ResolverConfig,
		Ports: []int{int(k.Port)}, PodCIDRs: cfg.PodCIDRs, Bridge: cfg.Edge.BridgeName, Self: os.Getpid(),
	}
	in.Sandboxes = func(ctx context.Context) ([]string, bool) {
		return sandboxes(ctx, filepath.Join(cfg.Dirs.Run, filepath.Base(api.DefaultSocket)))
	}
	if k.ProtectKernelDefaults {
		in.KernelSettings = config.KernelSettings()
	}
	for _, pattern := range []string{"*.conflist", "*.conf", "*.json"} {
		found, err := filepath.Glob(filepath.Join(cfg.Edge.CNIConfDir, pattern))
		in.ForeignNetwork = in.ForeignNetwork || err == nil && len(found) > 0
	}
	if exe, err := os.Executable(); err == nil {
		if info, err := os.Stat(exe); err == nil && info.ModTime().Before(time.Now().AddDate(0, 0, 1)) {
			in.Built = info.ModTime()
		}
	}
	return in
}

// sandboxes asks the agent at a socket for the sandboxes that exist. One that
// does not answer soon is no agent: the report is about this machine, not it.
func sandboxes(ctx context.Context, socket string) (ids []string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://islet"+api.PathStatus, nil)
	if err != nil {
		return nil, false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	var st api.Status
	if json.NewDecoder(resp.Body).Decode(&st) != nil {
		return nil, false
	}
	return st.Sandboxes, st.Sandboxes != nil
}
