package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/hostcommand"
	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/cni"
	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/runtime/abilities"
)

// Main runs the command islet doctor, which examines this machine. If args contains flags of the agent, Main uses the settings that
// result from these flags. Otherwise it uses the settings of a running agent. If no agent runs, it uses the settings of the
// installed service. The command's own flags are --all, --output=json, --socket, --fix and --dry-run. With --all, Main also prints
// the OK findings. --socket=PATH is the path of the agent's socket. With --fix, Main first applies all remedies. With --dry-run, it
// only prints the remedies. With --migrate, Main only prints how islet takes this host over; --write=DIR also writes translated settings.
// Main returns the exit code. The exit code is 1 if a problem prevents pods from running, and also for wrong flags.
func Main(ctx context.Context, args []string, rooms Externals, stdout, stderr io.Writer) int {
	return hostcommand.Report(stderr, "doctor", run(ctx, args, rooms, stdout, stderr))
}

func run(ctx context.Context, args []string, rooms Externals, stdout, stderr io.Writer) error {
	o, err := parseOptions(args)
	if err != nil {
		return hostcommand.ExitError{Code: hostcommand.ExitFailed, Err: err}
	}
	if o.migrate {
		return reportMigration(o.dir, o.json, stdout)
	}
	sockets := agentSockets(o.socket)
	var installed *service
	if len(o.rest) == 0 && o.socket == "" {
		installed = findService(os.DirFS("/"))
	}
	cfg, first, err := findConfiguration(ctx, o.rest, sockets, installed)
	if err != nil {
		return err
	}
	in := inputOf(cfg, rooms)
	in.Bridges, in.Service = otherBridges(ctx, sockets), installed
	found := Check(ctx, in, NewSystem())
	if o.fix || o.dry {
		switch n, err := Fix(stderr, found, o.dry); {
		case n == 0:
			fmt.Fprintln(stderr, "there is nothing to remove")
		case err == nil && !o.dry:
			found = Check(ctx, in, NewSystem())
		}
	}
	findings := append([]Finding{first}, found...)
	if o.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(findings)
	} else {
		err = Write(stdout, findings, o.all)
	}
	if err == nil && ExitCode(findings) != hostcommand.ExitOK {
		return hostcommand.ExitError{Code: ExitCode(findings)} // the findings were printed
	}
	return err
}

// options are the flags of the command.
type options struct {
	all, json, fix, dry, migrate bool
	socket, dir                  string
	rest                         []string // flags of the agent
}

// parseOptions returns an error if the flags do not fit together.
func parseOptions(args []string) (o options, err error) {
	if i := slices.Index(args, "-o"); i >= 0 && slices.Equal(args[i+1:min(i+2, len(args))], []string{"json"}) {
		args = slices.Concat(args[:i], []string{"-ojson"}, args[i+2:])
	}
	var own hostcommand.Flags
	for name, to := range map[string]*bool{
		"--all": &o.all, "-a": &o.all, "--output=json": &o.json, "-ojson": &o.json,
		"--fix": &o.fix, "--dry-run": &o.dry, "--migrate": &o.migrate,
	} {
		own.Switch(name, to)
	}
	own.Text("--socket", &o.socket)
	own.Value("--write", func(s string) error {
		o.dir = s
		if s == "" {
			return errors.New("--write needs a directory")
		}
		return nil
	})
	if o.rest, err = own.Take(args); err != nil {
		return o, err
	}
	if o.migrate && (o.fix || o.dry || len(o.rest) > 0) || !o.migrate && o.dir != "" {
		return o, errors.New("--migrate takes only --write=DIR and --output=json, and --write=DIR needs --migrate")
	}
	return o, nil
}

// inputOf returns the input of the checks for a configuration.
func inputOf(cfg *config.Config, rooms Externals) Input {
	k := &cfg.Kubelet
	in := Input{
		Externals: rooms,
		Host:      os.DirFS("/"), RootDir: cfg.Dirs.Root, StateDir: cfg.Dirs.State, RunDir: cfg.Dirs.Run,
		OCIRuntime: cfg.Edge.OCIRuntime, ShippedOCI: abilities.ShippedCrun(), SystemdCgroup: k.CgroupDriver == "systemd",
		FailSwapOn: *k.FailSwapOn, SwapUnasked: cfg.SwapUnasked, FailCgroupV1: *k.FailCgroupV1, ResolvConf: *k.ResolverConfig,
		Ports: []int{int(k.Port)}, PodCIDRs: cfg.PodCIDRs, Bridge: cfg.Edge.BridgeName, Self: os.Getpid(),
	}
	in.CNIConfDir, in.RealTime = cfg.Edge.CNIConfDir, cfg.Edge.RealTime
	if cfg.Edge.NetworkPlugin != "built-in" {
		in.HasPlugin = func(kind string) bool { return cni.HasPlugin(cfg.Edge.CNIBinDirs, kind) }
		in.BrokenCNI = func(file string) error { return cni.CheckFile(cfg.Edge.CNIBinDirs, file) }
	}
	if cfg.Edge.NetworkPlugin == "auto" {
		in.OfAnother, in.Standalone = cni.OfAnother, cfg.Standalone()
	}
	in.Interfaces = func() (list []Interface, err error) {
		found, err := bridge.ListInterfaces(netns.NS{})
		for _, i := range found {
			list = append(list, Interface(i))
		}
		return list, err
	}
	in.RemoveInterface = func(name string, index int) error { return bridge.RemoveUnused(netns.NS{}, name, index) }
	socket := socketIn(cfg.Dirs.Run)
	in.Sandboxes = func(ctx context.Context) ([]string, bool) { return askSandboxes(ctx, socket) }
	in.Pods = func(ctx context.Context) ([]v1.Pod, bool) {
		var l v1.PodList
		return l.Items, askAgent(ctx, socket, "/pods", &l)
	}
	in.Link = func(ctx context.Context) (Link, bool) { return askLink(ctx, socket, cfg) }
	in.Leftovers = func(ctx context.Context) string { return askLeftovers(ctx, socket) }
	in.CRISocket, in.ImageSocket = criSockets(cfg)
	if classes := cfg.Edge.Devices; len(classes) > 0 {
		in.Devices = func() ([]Complaint, error) { return rooms.CheckClasses(classes) }
	}
	in.ShutdownNeed = rooms.ShutdownTime(k)
	if k.ProtectKernelDefaults {
		in.KernelSettings = config.KernelSettings()
	}
	in.ForeignNetwork = cfg.Edge.NetworkPlugin == "cni"
	for _, pattern := range []string{"*.conflist", "*.conf", "*.json"} {
		if cfg.Edge.NetworkPlugin == "built-in" {
			break
		}
		found, err := filepath.Glob(filepath.Join(cfg.Edge.CNIConfDir, pattern))
		if in.OfAnother != nil {
			found = slices.DeleteFunc(found, func(file string) bool { return in.OfAnother(file) != "" })
		}
		in.ForeignNetwork = in.ForeignNetwork || err == nil && len(found) > 0
	}
	if exe, err := os.Executable(); err == nil {
		if info, err := os.Stat(exe); err == nil { // packages and install.sh preserve the file's modification time
			in.BuildTime = info.ModTime()
		}
	}
	return in
}
