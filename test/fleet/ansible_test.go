package fleet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

// A play runs the role on a system, which manages itself over a local connection.
type play struct {
	t    *testing.T
	s    *system.System
	kind string
	vars []string // lines of the file of variables

	refusals bool // whether fails does anything
}

func (p *play) command(options string) string {
	p.t.Helper()
	vars := "islet_kind: " + p.kind + "\nislet_version: " + version + "\nislet_source: /payload\n" + strings.Join(p.vars, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(p.s.Dir, "payload/vars.yaml"), []byte(vars), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return "cd /payload/packaging/ansible && LC_ALL=C.UTF-8 ANSIBLE_NOCOLOR=1 ANSIBLE_ROLES_PATH=roles ansible-playbook -i localhost, -c local -e ansible_python_interpreter=/usr/bin/python3" +
		" -e @/payload/vars.yaml " + options + " /payload/play.yaml 2>&1"
}

var recap = regexp.MustCompile(`changed=(\d+) +unreachable=0 +failed=0`)

// run runs the role, and returns the output and the number of changed tasks.
func (p *play) run(options string) (string, string) {
	p.t.Helper()
	out := p.s.Run(p.command(options))
	m := recap.FindStringSubmatch(out)
	if m == nil {
		p.t.Fatalf("the play has no result:\n%s", out)
	}
	return out, m[1]
}

// changes runs the role twice. The first run must change something, and the second nothing.
func (p *play) changes(more ...string) {
	p.t.Helper()
	p.vars = append(p.vars, more...)
	if out, n := p.run(""); n == "0" {
		p.t.Fatalf("%v changes nothing:\n%s", more, out)
	}
	if out, n := p.run("--diff"); n != "0" {
		p.t.Fatalf("a second run with %v changes %s tasks:\n%s", more, n, out)
	}
}

// fails runs the role. It must fail with the given text, and leave no files of an installation.
func (p *play) fails(text string, more ...string) {
	p.t.Helper()
	if !p.refusals {
		return
	}
	before := p.vars
	p.vars = append(p.vars[:len(p.vars):len(p.vars)], more...)
	says(p.t, p.s, 2, p.command(""), text)
	p.s.Run("! ls -d /var/lib/islet-ansible")
	p.vars = before
}

// cutOff runs the role, and kills it when a command has ended, as a link that is lost.
func (p *play) cutOff(when string) {
	p.t.Helper()
	command := strings.ReplaceAll(p.command(""), "'", `'\''`)
	p.s.Run("{ setsid sh -c '" + command + "' >/root/cut.log 2>&1 & } && play=$! && " + when + " && pkill -9 -s $play; cat /root/cut.log")
}

// token is a bootstrap kubeconfig for a server that does not exist.
const token = `islet_bootstrap_kubeconfig: |
  apiVersion: v1
  kind: Config
  clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
  users: [{name: u, user: {token: abcdef.not-in-any-output}}]
  contexts: [{name: x, context: {cluster: c, user: u}}]
  current-context: x`

// TestAnsible installs, configures, updates and removes islet with the role.
func TestAnsible(t *testing.T) {
	r := machine.NewReleaser(t)
	dir := t.TempDir()
	release := func(name, version string, program []byte) string {
		file := filepath.Join(dir, name)
		r.Release(file, version, program)
		return file
	}
	bad := append(r.BuildFailing(), "\n9.2.0 crash"...)
	payload := map[string]string{}
	for v, program := range map[string][]byte{"9.0.0": r.BuildVersion("9.0.0"), "9.1.0": r.BuildVersion("9.1.0"), "9.2.0": bad} {
		name := "islet-" + v + "-linux-amd64.tar.gz"
		payload[name] = release(name, v, program)
		payload[name+".release"] = payload[name] + ".release"
	}
	for name, c := range map[string]struct {
		init                   []string
		kind, enabled, program string
	}{
		"archive, systemd": {system.Systemd, "archive", "systemctl is-enabled islet && systemctl is-active islet", "/usr/local/bin/islet"},
		"archive, OpenRC":  {system.OpenRC, "archive", "rc-update show default | grep -q islet && rc-service islet status", "/usr/local/bin/islet"},
		"deb, systemd":     {system.Systemd, "deb", "systemctl is-enabled islet && systemctl is-active islet", "/usr/bin/islet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := boot(t, programs, c.init, payload)
			debs, err := filepath.Glob(filepath.Join(os.Getenv("ISLET_PACKAGES"), "islet_*_amd64.deb"))
			if err != nil || len(debs) != 1 {
				t.Fatal(debs, err)
			}
			deb, err := os.ReadFile(debs[0])
			if err != nil {
				t.Fatal(err)
			}
			for file, data := range map[string][]byte{"islet_" + version + "-1_amd64.deb": deb,
				"play.yaml": []byte("- hosts: all\n  roles: [islet]\n")} {
				if err := os.WriteFile(filepath.Join(s.Dir, "payload", file), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			file := map[string]string{"archive": archive, "deb": "islet_" + version + "-1_amd64.deb"}[c.kind]
			p := &play{t: t, s: s, kind: c.kind, refusals: name == "archive, systemd"} // they are the same everywhere
			// The directories, the file of flags and the message.
			if out, n := p.run("--check"); n != "3" || !strings.Contains(out, "no islet would become islet "+version) {
				t.Errorf("%s: %s", n, out)
			}
			s.Run("! test -e " + c.program + " && ! test -e /etc/islet")
			p.fails("and not that of islet_checksums", fmt.Sprintf("islet_checksums: {%s: %s}", file, strings.Repeat("0", 64)))
			p.fails("islet_checksums has no SHA-256 of "+file, "islet_source: https://127.0.0.1:1")
			p.fails("has a wrong value", `islet_args: ["--node-ip=$(id)"]`)
			// The role does not make a machine a second node. A package is installed, and is not started.
			s.Run("cp /bin/sleep /root/k3s-server && { setsid /root/k3s-server 6000 >/dev/null 2>&1 & } && until pgrep -x k3s-server; do :; done")
			says(t, s, 2, p.command(""), "k3s-server")
			s.Run("! pgrep -x islet && ! { " + c.enabled + "; } && pkill -x k3s-server && while pgrep -x k3s-server; do :; done")
			p.changes("islet_edge: {update: {keys: ['"+r.Public+"']}, configuration: {healthyFor: 2s, deadline: 20s}}", "islet_kubelet: {maxPods: 7}",
				fmt.Sprintf("islet_checksums: {%s: %s}", file, strings.Fields(s.Run("sha256sum /payload/" + file))[0]))
			s.Run(c.enabled + ` && [ "$(stat -c %a /etc/islet/edge.yaml /etc/islet/kubelet.yaml /etc/default/islet | sort -u)" = 644 ]`)
			s.Run("tar xzOf /payload/" + archive + " --wildcards '*/demo/islet-demo.tar' >/payload/demo.tar && " + c.program + " images import /payload/demo.tar &&" +
				" tar xzOf /payload/" + archive + " --wildcards '*/demo/web.yaml' >/etc/kubernetes/manifests/web.yaml")
			waitForPods(s, "web-edge")
			pods := s.Run("pgrep -x demo")

			agent := s.Run("pgrep -o -x islet")
			restarted := func(why string) {
				t.Helper()
				now := s.Run("pgrep -o -x islet")
				if now == agent {
					t.Errorf("%s does not restart the agent", why)
				}
				agent = now
			}
			// A wrong setting does not replace the former file.
			before := s.Run("cat /etc/islet/kubelet.yaml")
			p.fails("maxPodz", "islet_kubelet: {maxPodz: 8}")
			if now := s.Run("cat /etc/islet/kubelet.yaml"); now != before {
				t.Errorf("a wrong setting was written:\n%s", now)
			}
			if now := s.Run("pgrep -o -x islet"); now != agent {
				t.Error("a wrong setting restarts the agent")
			}
			// An installation that fails does not leave an agent with former settings.
			p.fails("9.9.9", "islet_version: 9.9.9", "islet_upgrade: install", "islet_kubelet: {maxPods: 8}")
			if p.refusals {
				restarted("a failed installation with other settings")
			}
			p.fails("9.9.9", "islet_version: 9.9.9", "islet_upgrade: install", "islet_kubelet: {maxPods: 8}")
			if now := s.Run("pgrep -o -x islet"); now != agent {
				t.Error("an installation that fails again restarts an agent with the same settings")
			}
			p.changes("islet_kubelet: {maxPods: 9}", token)
			restarted("another setting")
			// A run wrote one file and failed at another one. The next run writes nothing, and restarts the agent.
			p.fails("nonsense", "islet_kubelet: {maxPods: 10}", "islet_edge: {nonsense: 1}")
			p.changes("islet_kubelet: {maxPods: 10}")
			restarted("a setting that a failed run has written")
			s.Run("grep -qx 'maxPods: 10' /etc/islet/kubelet.yaml && [ \"$(stat -c %a%U /etc/islet/bootstrap.kubeconfig)\" = 600root ]")
			if out, _ := p.run("--diff -vvv"); strings.Contains(out, "not-in-any-output") {
				t.Error("the output contains the token")
			}
			s.Run(`tr '\0' ' ' </proc/$(pgrep -o -x islet)/cmdline | grep -q -- ' --rotate-certificates --fail-swap-on=false .*--bootstrap-kubeconfig=/etc/islet/bootstrap.kubeconfig --kubeconfig=/etc/islet/kubeconfig'`)

			// A node that has joined stays in its cluster: without the token in the inventory, and after islet join.
			p.vars = slices.DeleteFunc(p.vars, func(v string) bool { return v == token })
			unchanged := func(why string) {
				t.Helper()
				if out, n := p.run("--diff"); n != "0" {
					t.Errorf("%s: %s tasks change:\n%s", why, n, out)
				}
			}
			unchanged("without the token")
			s.Run("printf 'k3s:\\n  directory: /var/lib/islet/k3s/current\\n---\\n' >>/etc/islet/edge.yaml" +
				" && printf '\\nclusterDNS: [10.43.0.10]\\nrotateCertificates: false\\n---\\n# end\\n' >>/etc/islet/kubelet.yaml")
			unchanged("a node of k3s")
			s.Run("mv /etc/islet/edge.yaml /root/ && echo '- k3s' >/etc/islet/edge.yaml")
			p.fails("is not a valid configuration")
			s.Run("mv /root/edge.yaml /etc/islet/")
			p.fails("Set islet_leave to true", "islet_edge: {k3s: {directory: ''}}")
			p.fails("Set islet_leave to true", "islet_kubelet: {rotateCertificates: true}")
			p.fails("Set islet_leave to true", token)
			unchanged("a node of k3s after runs that failed")
			p.fails("set fields in islet_edge", "islet_leave: true", "islet_edge: {}")
			p.fails("set fields in islet_edge", "islet_leave: true", "islet_kubelet: {}")
			s.Run("echo --kubeconfig=/etc/islet/kubeconfig >/etc/islet/flags") // as islet.yaml does
			p.fails("To move the board", "islet_leave: true")
			s.Run("rm /etc/islet/flags")
			vars := p.vars
			p.changes("islet_leave: true")
			restarted("leaving the cluster")
			s.Run("! grep -E 'k3s|clusterDNS|rotateCertificates' /etc/islet/*.yaml && ! grep -e --kubeconfig /etc/default/islet")
			// A kubeconfig of the inventory gets no flags that the inventory does not have.
			p.changes("islet_args: [--pod-manifest-path=/etc/kubernetes/manifests, --kubeconfig=/etc/islet/kubeconfig]")
			s.Run("! grep -E -e '--(fail-swap-on|rotate-certificates|bootstrap-kubeconfig)' /etc/default/islet")
			p.vars = append(vars, token)
			p.changes()
			restarted("joining again")

			installed := func(want string) {
				t.Helper()
				if got, _, _ := strings.Cut(s.Run(c.program+" version"), "\n"); !strings.Contains(got, want) {
					t.Errorf("version %s is installed, want %s", got, want)
				}
			}
			p.fails("9.2.0", "islet_version: 9.2.0")
			installed(version)
			p.changes("islet_version: 9.1.0")
			installed("9.1.0")
			p.fails("it is not newer than the running version", "islet_version: 9.0.0")
			p.vars = append(p.vars, "islet_version: "+version, "islet_upgrade: none")
			if out, n := p.run(""); n != "0" {
				t.Errorf("islet_upgrade: none changes %s tasks:\n%s", n, out)
			}
			installed("9.1.0")
			waitForPods(s, "web-edge")
			if now := s.Run("pgrep -x demo"); now != pods {
				t.Errorf("the pod's process %s is now %s", pods, now)
			}

			p.vars = append(p.vars, "islet_upgrade: install")
			if c.kind == "archive" {
				p.cutOff("until [ $(" + c.program + " --version | head -n 1 | cut -d ' ' -f 2) = " + version + " ]; do :; done")
				p.changes()
				restarted("a run that was cut after the installation")
				s.Run(c.program + " status | grep -q 'islet " + version + ",'")
				s.Run("rm /usr/local/lib/islet/crun") // a removal that was cut off has removed the program last
				p.changes()
				s.Run("test -x /usr/local/lib/islet/crun")
				p.changes("islet_state: absent")
				s.Run("pgrep -x demo")
			} else {
				says(t, s, 2, p.command("-e islet_state=absent"), "islet_end_pods")
				s.Run("pgrep -x demo && pgrep -x islet")
				p.changes("islet_state: absent", "islet_end_pods: true")
				s.Run("! pgrep -x demo")
			}
			s.Run("! test -e " + c.program + " && test -e /var/lib/islet/islet.db && test -e /etc/islet/bootstrap.kubeconfig && test -e /etc/islet/edge.yaml")
			if c.kind == "deb" { // dpkg was cut off before the maintainer script
				s.Run("dpkg --unpack /payload/" + file)
			}
			p.changes("islet_state: present")
			s.Run(c.enabled)
			if c.kind == "deb" {
				s.Run("[ \"$(dpkg-query -Wf '${db:Status-Status}' islet)\" = installed ]")
			}
			waitForPods(s, "web-edge")
			s.Run("touch /etc/islet/.mine") // a file of somebody else stays
			p.changes("islet_state: absent", "islet_purge: true")
			s.Run("! pgrep -x demo && ! pgrep -x islet && ! find /var/lib/islet /etc/default/islet " + c.program + " -type f | grep .")
			s.Run("[ \"$(ls -A /etc/islet)\" = .mine ] && rm /etc/islet/.mine")
			p.changes()
			s.Run("! test -e /etc/islet")
		})
	}
}

// TestAnsibleLint checks the role and the example with ansible-lint and yamllint.
func TestAnsibleLint(t *testing.T) {
	s := boot(t, programs, system.Systemd, nil)
	s.Run("cp -r /payload/packaging/ansible /payload/packaging/cloud-init /root/ && cd /root/ansible && yamllint --strict -c .yamllint .")
	const lint = "cd /root/ansible && HOME=/root LC_ALL=C.UTF-8 ansible-lint --offline --strict --profile production --nocolor "
	s.Run(lint + "islet.yaml roles/islet")
	// A fault is found.
	s.Run("cd /root/ansible && printf -- '- name: lower case\\n  shell: rm /tmp/x\\n' >>roles/islet/tasks/main.yaml")
	if out, code := s.Try(lint + "islet.yaml roles/islet"); code == 0 || !bytes.Contains([]byte(out), []byte("tasks/main.yaml")) {
		t.Errorf("%d: %s", code, out)
	}
}
