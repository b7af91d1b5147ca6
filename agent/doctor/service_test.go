package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// hostOf returns the files of a host. A text that begins with "packaging/" is the name of a file that is shipped, and one
// that begins with "->" is the target of a link.
func hostOf(t *testing.T, files map[string]string) fstest.MapFS {
	t.Helper()
	host := fstest.MapFS{}
	for name, text := range files {
		if target, ok := strings.CutPrefix(text, "->"); ok {
			host[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
			continue
		}
		if strings.HasPrefix(text, "packaging/") {
			data, err := os.ReadFile("../../" + text)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		host[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return host
}

// TestFindService checks that the flags of the installed service are those that systemd or OpenRC would pass to the agent.
func TestFindService(t *testing.T) {
	const unit, shipped = "etc/systemd/system/islet.service", "packaging/systemd/islet.service"
	const usual = "--pod-manifest-path=/etc/kubernetes/manifests --seccomp-default"
	long := "--state-dir=/data" + strings.Repeat(" --node-labels=a=b", 1000)
	for name, c := range map[string]struct {
		files map[string]string
		want  string // the service and its flags; "" if there is none
	}{
		"nothing": {nil, ""},
		"shipped": {map[string]string{unit: shipped}, "islet.service " + usual},
		"of a package": {map[string]string{"usr/lib/systemd/system/islet.service": shipped, "etc/default/islet": "packaging/default/islet"},
			"islet.service " + usual},
		"flags of one's own": {map[string]string{unit: shipped, "etc/default/islet": "# mine\nISLET_ARGS=\"--v=2 --node-labels='a=b c'\" \n"},
			"islet.service --v=2 --node-labels=a=b c"},
		"no flags":    {map[string]string{unit: shipped, "etc/default/islet": "ISLET_ARGS=\n"}, "islet.service"},
		"an old unit": {map[string]string{unit: "[Service]\nExecStart=/usr/local/bin/islet $A ${B}x $$\nEnvironment=A=1 \"B=2 3\"\n"}, "islet.service 1 2 3x $"},
		"continued":   {map[string]string{unit: "[Service]\nExecStart=/usr/bin/islet \\\n  --v=1 \\\n  --v=2\n"}, "islet.service --v=1 --v=2"},
		"blanks":      {map[string]string{unit: shipped, "etc/default/islet": "OTHER=x\n ISLET_ARGS = --v=8 --v=9 "}, "islet.service --v=8 --v=9"},
		"drop-ins": {map[string]string{unit: shipped, "usr/lib/systemd/system/islet.service.d/a.conf": "[Service]\nExecStart=\nExecStart=/x --v=5\n",
			"etc/systemd/system/islet.service.d/b.conf": "[Service]\nExecStart=\nExecStart=-/opt/islet agent --v=7\n"}, "islet.service --v=7"},
		"a drop-in that is replaced": {map[string]string{unit: shipped, "usr/lib/systemd/system/islet.service.d/a.conf": "[Service]\nEnvironment=ISLET_ARGS=--v=5\n",
			"etc/systemd/system/islet.service.d/a.conf": "[Service]\nEnvironment=ISLET_ARGS=--v=6\n"}, "islet.service --v=6"},
		"a kubelet": {map[string]string{"etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --v=1\n", "usr/bin/kubelet": "binary"}, ""},
		"as the kubelet": {map[string]string{"etc/systemd/system/kubelet.service": "packaging/kubeadm/kubelet.service",
			"etc/systemd/system/kubelet.service.d/10-kubeadm.conf": "packaging/kubeadm/10-kubeadm.conf", "usr/local/bin/kubelet": "->/usr/local/bin/islet",
			"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--node-ip=192.0.2.7\n"}, "kubelet.service *--config=/var/lib/kubelet/config.yaml *--node-ip=192.0.2.7"},
		"as the kubelet of an RPM": {map[string]string{"usr/lib/systemd/system/kubelet.service": "packaging/kubeadm/kubelet.service",
			"usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "packaging/kubeadm/10-kubeadm.conf", "usr/local/bin/kubelet": "->islet",
			"usr/lib/systemd/system/islet.service": shipped, "etc/default/islet": "packaging/default/islet",
			"etc/default/kubelet": "packaging/default/kubelet", "etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=--node-ip=192.0.2.7 --root-dir=/data\n"},
			"kubelet.service *--config=/var/lib/kubelet/config.yaml *--node-ip=192.0.2.7 --root-dir=/data"},
		"a drop-in of one's own": {map[string]string{"etc/systemd/system/kubelet.service": "packaging/kubeadm/kubelet.service",
			"etc/systemd/system/kubelet.service.d/10-kubeadm.conf": "packaging/kubeadm/10-kubeadm.conf", "usr/local/bin/kubelet": "->/usr/local/bin/islet",
			"etc/systemd/system/kubelet.service.d/20-own.conf": "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--fail-swap-on=false\n",
			"etc/default/kubelet":                              "packaging/default/kubelet"}, "kubelet.service *--config=/var/lib/kubelet/config.yaml *--fail-swap-on=false"},
		"several lines": {map[string]string{unit: shipped, "etc/default/islet": "ISLET_ARGS=\"--v=8\n--state-dir=/data\r\n\t--node-labels='a=b c'\n\"\n"},
			"islet.service --v=8 --state-dir=/data --node-labels=a=b c"},
		"no quotes": {map[string]string{unit: shipped, "etc/default/islet": "ISLET_ARGS=--v=8 --node-labels='a=b c'\n"},
			"islet.service --v=8 --node-labels=a=b c"},
		"OpenRC, no quotes": {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd", "etc/conf.d/islet": "ISLET_ARGS=--v=8 --v=9"},
			"islet " + usual},
		"OpenRC, added flags": {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd", "etc/conf.d/islet": "ISLET_ARGS=--v=8",
			"etc/default/islet": "ISLET_ARGS=\"$ISLET_ARGS --node-labels='a=b c'\"\n"}, "islet --v=8 --node-labels=a=b c"},
		"OpenRC": {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd", "etc/conf.d/islet": "ISLET_ARGS='--v=3'"}, "islet --v=3"},
		"OpenRC, both files": {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd", "etc/conf.d/islet": "ISLET_ARGS='--v=3'",
			"etc/default/islet": "ISLET_ARGS='--v=4'"}, "islet --v=4"},
		"OpenRC, several lines": {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd", "etc/default/islet": "ISLET_ARGS='--v=8\n--state-dir=/data\n'\n"},
			"islet --v=8 --state-dir=/data"},
		"OpenRC, many flags": {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd", "etc/conf.d/islet": "ISLET_ARGS='" + long + "'",
			"etc/default/islet": "ISLET_ARGS=\"$ISLET_ARGS --v=9\"\n"}, "islet " + long + " --v=9"},
		"OpenRC, no flags":          {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd"}, "islet " + usual},
		"OpenRC's file and systemd": {map[string]string{"etc/init.d/islet": "packaging/openrc/islet.initd", unit: shipped, "run/systemd/system/x": ""}, "islet.service " + usual},
		"hostile":                   {map[string]string{unit: "ExecStart=" + strings.Repeat("\"", 1<<20)}, ""},
	} {
		s, have := findService(hostOf(t, c.files)), ""
		if s != nil {
			have = strings.Join(append([]string{s.name}, s.args...), " ")
		}
		for part := range strings.SplitSeq(c.want, " *") {
			if len(part) < len(c.want) && strings.Contains(have, part) {
				continue
			}
			if have != c.want {
				t.Errorf("%s: got %q, want %q", name, have, c.want)
			}
		}
	}
}

// TestStartCommand checks the command that starts the service now and at each boot.
func TestStartCommand(t *testing.T) {
	for want, s := range map[string]service{
		"systemctl enable --now islet":                          {name: "islet.service"},
		"systemctl enable --now kubelet":                        {name: "kubelet.service"},
		"rc-update add islet default && rc-service islet start": {name: "islet", openRC: true},
	} {
		if got := s.enabling(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestServiceState checks the findings about a service that cannot start, is stopped or does not start at boot. They contain the last error
// in the service's log.
func TestServiceState(t *testing.T) {
	const log = "islet: old\ntime=x level=INFO msg=y\nislet: /etc/islet/edge.yaml:3: \x1b[31mbridgName: unknown field\nislet.service: Main process exited\n"
	missing := &service{name: "kubelet.service", args: []string{"--hostname-override=n", "--config=/nonexistent/config.yaml"}}
	systemd := &service{name: "islet.service", args: []string{"--hostname-override=n", "--config=", "--edge-config="}}
	openrc := &service{name: "islet", openRC: true}
	for name, c := range map[string]struct {
		of       *service
		show     string // of systemctl show, without "State"
		files    map[string]string
		agent    bool
		severity Severity
		what     []string // "" if there is no finding
		advice   string
	}{
		"none":         {nil, "", nil, false, OK, nil, ""},
		"no systemd":   {systemd, "ActiveState=failed", map[string]string{"run/systemd/system": ""}, false, OK, nil, ""},
		"running":      {systemd, "LoadState=loaded\nActiveState=active\nUnitFileState=enabled", nil, true, OK, []string{"islet.service is running"}, ""},
		"not at boot":  {systemd, "ActiveState=active\nUnitFileState=disabled", nil, true, Info, []string{"does not start at boot"}, "systemctl enable islet"},
		"starting":     {systemd, "ActiveState=activating\nSubState=start", nil, false, Info, []string{"is starting"}, "journalctl -u islet"},
		"crashes":      {systemd, "ActiveState=activating\nSubState=auto-restart\nResult=exit-code\nExecMainStatus=2\nNRestarts=7", nil, false, Error, []string{"islet.service cannot start (exit-code, exit status 2, started again 7 times): islet: /etc/islet/edge.yaml:3: ?[31mbridgName: unknown field"}, "journalctl -u islet shows more; then: systemctl restart islet"},
		"failed":       {systemd, "ActiveState=failed\nSubState=failed\nResult=\x1b[2J", nil, false, Error, []string{"cannot start (?[2J"}, ""},
		"before join":  {missing, "ActiveState=activating\nSubState=auto-restart", nil, false, Info, []string{"waits for the configuration that kubeadm writes"}, "kubeadm join"},
		"masked":       {systemd, "LoadState=masked\nActiveState=inactive", nil, false, Warning, []string{"masked"}, "systemctl unmask islet"},
		"stopped":      {systemd, "ActiveState=inactive\nSubState=dead", nil, false, Warning, []string{"is stopped, so no pods start"}, "systemctl start islet"},
		"by hand":      {systemd, "ActiveState=inactive\nSubState=dead", nil, true, Info, []string{"an agent is running, but"}, ""},
		"OpenRC":       {openrc, "", map[string]string{"run/openrc/started/islet": "x"}, true, OK, []string{"is running"}, ""},
		"OpenRC fails": {openrc, "", map[string]string{"run/openrc/started/islet": "x", "var/log/islet.log": strings.Repeat("x\n", 1<<20) + log}, false, Error, []string{"no agent is running", "?[31mbridgName"}, "/var/log/islet.log shows more; then: rc-service islet restart"},
		"OpenRC stops": {openrc, "", map[string]string{"run/openrc/softlevel": "default"}, false, Warning, []string{"is stopped"}, "rc-service islet start"},
	} {
		host := board()
		host["run/systemd/system/x"] = &fstest.MapFile{}
		for file, text := range c.files {
			host[file] = &fstest.MapFile{Data: []byte(text)}
			if text == "" {
				delete(host, file+"/x")
				delete(host, file)
			}
		}
		in, sys := input(host), system()
		in.Service = c.of
		sys.Output = func(_ context.Context, path string, args ...string) (string, error) {
			switch {
			case strings.HasSuffix(path, "/systemctl") && slices.Contains(args, c.of.name):
				return c.show, nil
			case strings.HasSuffix(path, "/journalctl") && slices.Contains(args, "--unit="+c.of.name):
				return log, nil
			}
			return "", errors.New("not found")
		}
		p := &checkup{Input: in, sys: sys, agentRuns: c.agent}
		p.service(t.Context())
		if len(p.findings) != min(1, len(c.what)) {
			t.Errorf("%s: %+v", name, p.findings)
			continue
		}
		for _, f := range p.findings {
			if f.Severity != c.severity || !strings.Contains(f.Advice, c.advice) || strings.ContainsRune(f.What, '\x1b') ||
				len(f.What) > 2*maxOneLine {
				t.Errorf("%s: %+v", name, f)
			}
			for _, want := range c.what {
				if !strings.Contains(f.What, want) {
					t.Errorf("%s: %q is not in %q", name, want, f.What)
				}
			}
		}
	}
}

// TestPlannedFlags checks that the flags of a service that is not installed yet are those in the files that it will read.
func TestPlannedFlags(t *testing.T) {
	const file = "etc/default/islet"
	for name, c := range map[string]struct {
		files map[string]string
		want  string // with a + before it if a file sets flags
	}{
		"nothing":      {nil, ""},
		"no flags":     {map[string]string{file: "packaging/default/islet"}, ""},
		"flags":        {map[string]string{file: "ISLET_ARGS=--v=1\nISLET_ARGS=\"--v=2 --config='a b'\"\n"}, "+--v=2 --config=a b"},
		"empty":        {map[string]string{file: "ISLET_ARGS=\n"}, "+"},
		"OpenRC":       {map[string]string{file: "ISLET_ARGS=\"$ISLET_ARGS --v=2\"\n", "etc/conf.d/islet": "ISLET_ARGS=--v=1\n", "sbin/openrc-run": "x"}, "+--v=1 --v=2"},
		"is installed": {map[string]string{file: "ISLET_ARGS=--v=2\n", "etc/systemd/system/islet.service": "[Service]\nExecStart=/usr/bin/islet --v=3\n"}, "+--v=3"},
	} {
		flags, ok := PlannedFlags(hostOf(t, c.files))
		got := strings.Join(flags, " ")
		if ok {
			got = "+" + got
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestServiceConfiguration checks that the doctor examines the configuration of the installed service if the doctor has no flags and no
// agent responds. If an agent runs, the doctor also reports a mistake that was added to the files after the agent's start.
func TestServiceConfiguration(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good, bad := write("good.yaml", "bridgeName: mine0\n"), write("bad.yaml", "bridgName: mine0\n")
	with := func(file string) *service {
		return &service{name: "islet.service", args: []string{"--hostname-override=n", "--config=", "--edge-config=" + file}}
	}
	none := []string{dir + "/none"}
	cfg, f, err := findConfiguration(t.Context(), nil, none, with(good))
	if err != nil || cfg.Edge.BridgeName != "mine0" || f.Severity != OK || !strings.Contains(f.What, "of islet.service is valid: "+good) {
		t.Errorf("a valid one: %+v %v", f, err)
	}
	cfg, f, err = findConfiguration(t.Context(), nil, none, with(bad))
	if err != nil || cfg.Edge.BridgeName != "islet0" || f.Severity != Error || !strings.Contains(f.What,
		"of islet.service has a mistake: "+bad+":3: bridgName") {
		t.Errorf("a mistake: %+v %v", f, err)
	}
	if cfg, f, err = findConfiguration(t.Context(), []string{"--config=", "--edge-config="}, none, with(bad)); err != nil || f.Severity != OK || cfg.Edge.BridgeName != "islet0" {
		t.Errorf("flags override the service: %+v %v", f, err)
	}
	join := &service{name: "kubelet.service", args: []string{"--config=" + dir + "/config.yaml"}}
	if _, f, err = findConfiguration(t.Context(), nil, none, join); err != nil || f.Severity == Error {
		t.Errorf("before kubeadm join: %+v %v", f, err)
	}
	n, stop := servertest.Start(t)
	defer stop()
	n.Settings = func() any {
		cfg, _, err := findConfiguration(t.Context(), nil, none, with(good))
		if err != nil {
			t.Error(err)
		}
		return Settings(cfg)
	}
	if _, f, err = findConfiguration(t.Context(), nil, []string{n.Socket}, with(good)); err != nil || f.Severity != OK || !strings.Contains(f.What, n.Socket) {
		t.Errorf("a running agent: %+v %v", f, err)
	}
	cfg, f, err = findConfiguration(t.Context(), nil, []string{n.Socket}, with(bad))
	if err != nil || cfg.Edge.BridgeName != "mine0" || f.Severity != Error || f.ID != "configuration-next" ||
		!strings.Contains(f.What, "bad.yaml:3") {
		t.Errorf("changed since the agent started: %+v %v", f, err)
	}
}
