package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/islet-edge/islet/agent/doctor/unitfile"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/printable"
)

// A service is the service of this machine that starts an agent.
type service struct {
	name   string   // such as islet.service; for OpenRC without the suffix
	openRC bool     // an OpenRC service; otherwise the service is a systemd unit
	args   []string // flags of the agent
}

// short returns the name for systemctl, journalctl and rc-service.
func (s *service) short() string { return strings.TrimSuffix(s.name, ".service") }

// command returns a command line for an action on the service. The parameter verb is the action,
// such as restart.
func (s *service) command(verb string) string {
	if s.openRC {
		return "rc-service " + s.short() + " " + verb
	}
	return "systemctl " + verb + " " + s.short()
}

// enabling returns the command line that starts the service now and at each boot.
func (s *service) enabling() string {
	if s.openRC {
		return "rc-update add " + s.short() + " default && " + s.command("start")
	}
	return s.command("enable --now")
}

// log returns the command that shows the log.
func (s *service) log() string {
	if s.openRC {
		return openRCLog
	}
	return "journalctl -u " + s.short()
}

// openRCLog is the log file of the OpenRC service.
const openRCLog = "/var/log/islet.log"

// findService returns the service that starts an agent on the host, with the flags that the service passes to the agent.
// It returns nil if there is no such service. It only reads files and runs no program. A file that cannot be read is
// treated as absent.
func findService(host fs.FS) *service {
	if _, err := fs.Stat(host, "run/systemd/system"); err != nil {
		if text := unitfile.Text(host, "etc/init.d/islet"); text != "" {
			return openRCService(host, text)
		}
	}
	// Where islet is the kubelet, the unit of the package islet stays, and is disabled.
	for _, name := range []string{"kubelet.service", "islet.service"} {
		u := unitfile.Read(host, name)
		words := unitfile.Words(u.Command)
		if len(words) == 0 || words[0] == "" || name == "kubelet.service" && !isIslet(host, words[0]) {
			continue
		}
		return &service{name: name, args: agentFlags(unitfile.Expand(words, u.Environment(host)))}
	}
	return nil
}

// ServiceFlags returns the flags that the service of a host passes to the agent. It returns false if there is no such service. Package
// config adds the flags of config.FlagsFile to them.
func ServiceFlags(host fs.FS) ([]string, bool) {
	s := findService(host)
	if s == nil {
		return nil, false
	}
	return s.args, true
}

// PlannedFlags is like ServiceFlags. If islet has no service yet, PlannedFlags returns the flags in the files that its service will read.
// It returns false if these files set no flags.
func PlannedFlags(host fs.FS) ([]string, bool) {
	if s := findService(host); s != nil {
		return s.args, true
	}
	const file = "etc/default/islet"
	env, split := map[string]string{}, unitfile.Words
	if _, err := fs.Stat(host, "sbin/openrc-run"); err == nil {
		unitfile.ParseShell(unitfile.Text(host, "etc/conf.d/islet"), env)
		unitfile.ParseShell(unitfile.Text(host, file), env)
		split = unitfile.ShellWords
	} else {
		unitfile.ParseEnvironment(unitfile.Text(host, file), env)
	}
	args, ok := env["ISLET_ARGS"]
	return split(args), ok
}

// StartCommand returns the command line that starts the service of this machine now and at each boot. It is empty if there is no service.
func StartCommand() string {
	if s := findService(os.DirFS("/")); s != nil {
		return s.enabling()
	}
	return ""
}

// openRCService returns the service of an OpenRC script. The script sets the agent's flags in its variable command_args. OpenRC sources the
// file of conf.d before the script, and the script sources the other file. Then a shell evaluates command_args.
func openRCService(host fs.FS, script string) *service {
	env := map[string]string{}
	for _, file := range []string{"etc/conf.d/islet", "etc/default/islet"} {
		unitfile.ParseShell(unitfile.Text(host, file), env)
	}
	unitfile.ParseShell(script, env)
	return &service{name: "islet", openRC: true, args: agentFlags(append([]string{"islet"}, unitfile.ShellWords(env["command_args"])...))}
}

// isIslet reports whether a program, such as /usr/local/bin/kubelet, is a link to islet.
func isIslet(host fs.FS, program string) bool {
	target, err := fs.ReadLink(host, inHost(program))
	return err == nil && path.Base(target) == "islet"
}

// agentFlags returns the flags of an agent's command line, without the program and the command.
func agentFlags(line []string) []string {
	if len(line) > 1 && line[1] == "agent" {
		line = line[1:]
	}
	return line[min(1, len(line)):]
}

// checkConfiguration checks the configuration with which the service starts its agent. It returns the configuration, or an
// error of the configuration. If kubeadm manages the node and the node has not joined its cluster yet, both results are
// nil.
func (s *service) checkConfiguration() (*config.Config, error) {
	cfg, _, err := config.Load(s.args)
	if err != nil && s.waitsForKubeadm(err) {
		return nil, nil
	}
	return cfg, err
}

// waitsForKubeadm reports whether an error only means that kubeadm has not written its files yet.
func (s *service) waitsForKubeadm(err error) bool {
	return s.name == "kubelet.service" && errors.Is(err, fs.ErrNotExist)
}

// nextStart returns the finding about a configuration with which the service of a running agent would not start again. It
// returns false if there is no such finding.
func (s *service) nextStart() (Finding, bool) {
	if s == nil {
		return Finding{}, false
	}
	_, err := s.checkConfiguration()
	if err == nil || errors.Is(err, fs.ErrPermission) {
		return Finding{}, false
	}
	return Finding{ID: "configuration-next", Severity: Error,
		What:   fmt.Sprintf("%s will not start again: its configuration was changed, and has a mistake: %s", s.name, oneLine(err.Error())),
		Advice: "correct it before the next restart or reboot"}, true
}

// service checks whether the agent's service can start, whether it is running, and whether it starts at boot.
func (p *checkup) service(ctx context.Context) {
	switch {
	case p.Service == nil:
	case p.Service.openRC:
		p.openRCState()
	case p.exists("run/systemd/system"):
		p.unitState(ctx)
	}
}

func (p *checkup) unitState(ctx context.Context) {
	s := p.Service
	systemctl, err := p.sys.Find("systemctl")
	if err != nil {
		return
	}
	out, err := p.sys.Output(ctx, systemctl, "show",
		"--property=LoadState,ActiveState,SubState,UnitFileState,Result,ExecMainStatus,NRestarts", s.name)
	if err != nil {
		return
	}
	unit := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			unit[key] = oneLine(value)
		}
	}
	switch state, sub := unit["ActiveState"], unit["SubState"]; {
	case unit["LoadState"] == "masked":
		p.add("service", Warning, "systemctl unmask "+s.short(), "%s is masked, so it cannot start", s.name)
	case state == "failed", state == "activating" && strings.HasPrefix(sub, "auto-restart"):
		if cfg, err := s.checkConfiguration(); cfg == nil && err == nil {
			p.add("service", Info, "kubeadm join, or kubeadm init", "%s waits for the configuration that kubeadm writes", s.name)
			return
		}
		p.cannotStart(fmt.Sprintf("%s, exit status %s, started again %s times", unit["Result"], unit["ExecMainStatus"], unit["NRestarts"]),
			p.journalError(ctx))
	case state == "activating" || state == "reloading":
		p.add("service", Info, "nothing, or see "+s.log(), "%s is starting", s.name)
	case state == "active" && unit["UnitFileState"] == "disabled":
		p.add("service", Info, "systemctl enable "+s.short(), "%s is running, but does not start at boot", s.name)
	case state == "active":
		p.add("service", OK, "", "%s is running", s.name)
	default:
		p.isStopped()
	}
}

// openRCState reports the state that OpenRC keeps as links. For OpenRC, a service that crashes and is started again and
// again counts as started.
func (p *checkup) openRCState() {
	s := p.Service
	switch started := p.exists("run/openrc/started/islet"); {
	case started && p.agentRuns:
		p.add("service", OK, "", "the service %s is running", s.name)
	case started, p.exists("run/openrc/failed/islet"):
		p.cannotStart("no agent is running", lastError(p.tail(openRCLog)))
	case p.exists("run/openrc"):
		p.isStopped()
	}
}

func (p *checkup) cannotStart(state, last string) {
	s := p.Service
	if last == "" {
		last = "its log does not show an error to this user"
	}
	p.add("service", Error, fmt.Sprintf("correct the cause; %s shows more; then: %s", s.log(), s.command("restart")),
		"%s cannot start (%s): %s", s.name, state, last)
}

func (p *checkup) isStopped() {
	if p.agentRuns {
		p.add("service", Info, "nothing, if that is intended", "an agent is running, but %s is stopped", p.Service.name)
		return
	}
	p.add("service", Warning, p.Service.command("start"), "%s is stopped, so no pods start", p.Service.name)
}

// journalError returns the last error that the unit has logged, or "".
func (p *checkup) journalError(ctx context.Context) string {
	journalctl, err := p.sys.Find("journalctl")
	if err != nil {
		return ""
	}
	out, err := p.sys.Output(ctx, journalctl, "--unit="+p.Service.name, "--lines=200", "--output=cat", "--no-pager", "--quiet")
	if err != nil {
		return ""
	}
	return lastError(out)
}

// lastError returns the last line of a log that is an error of an agent.
func lastError(log string) (last string) {
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "islet: ") || strings.Contains(line, "level=ERROR") {
			last = line
		}
	}
	return oneLine(last)
}

// tail returns the end of a log file of the host.
func (p *checkup) tail(name string) string {
	f, err := p.Host.Open(inHost(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > unitfile.MaxFile {
		if s, ok := f.(io.Seeker); ok {
			s.Seek(-unitfile.MaxFile, io.SeekEnd)
		}
	}
	data, _ := io.ReadAll(io.LimitReader(f, unitfile.MaxFile))
	return string(data)
}

// maxOneLine is the maximum number of bytes that a finding quotes from another program.
const maxOneLine = 600

// oneLine makes a text of another program safe for a terminal, and limits it.
func oneLine(text string) string {
	text = printable.Line(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
	if len(text) > maxOneLine {
		text = strings.ToValidUTF8(text[:maxOneLine], "") + " ..."
	}
	return text
}
