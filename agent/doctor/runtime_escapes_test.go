package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func findings(host map[string]string, check func(*checkup)) string {
	files := fstest.MapFS{}
	for name, text := range host {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	p := &checkup{Input: Input{Host: files}, sys: System{Find: func(string) (string, error) { return "", errors.New("not there") }}}
	check(p)
	var out []string
	for _, f := range p.findings {
		out = append(out, f.Severity.String()+" "+f.ID+" "+f.What)
	}
	return strings.Join(out, "\n")
}

func TestRuncEscapes(t *testing.T) {
	debian := func(version string) map[string]string {
		return map[string]string{"var/lib/dpkg/status": "Package: crun\nStatus: install ok installed\nVersion: 9\n\nPackage: runc\nStatus: install ok installed\nDescription: x\n Version: 7\nVersion: " + version + "\n"}
	}
	for _, c := range []struct {
		version string
		host    map[string]string
		want    string
		not     string
	}{
		{"runc version 1.1.5", nil, "CVE-2024-21626; CVE-2025-31133", ""},
		{"runc version 1.1.11", nil, "CVE-2024-21626", ""},
		{"runc version 1.1.12", nil, "warning runtime-escapes", "21626"},
		{"runc version 1.2.7", nil, "CVE-2025-52881", "21626"},
		{"runc version 1.2.8", nil, "ok runtime-escapes", "CVE"},
		{"runc version 1.3.2", nil, "CVE-2025-52881", "21626"},
		{"runc version 1.3.3", nil, "ok runtime-escapes", "CVE"},
		{"runc version 1.4.0", nil, "ok runtime-escapes", "CVE"},
		{"runc version 2.0.0", nil, "ok runtime-escapes", "CVE"},
		{"runc version 1.1.5+ds1", debian("1.1.5+ds1-1+deb12u1"), "package 1.1.5+ds1-1+deb12u1", "21626"},
		{"runc version 1.1.5+ds1", debian("1.1.5+ds1-1"), "CVE-2024-21626", ""},
		{"crun version 1.8.1", nil, "", "runtime-escapes"},
		{"runc", nil, "", "runtime-escapes"},
	} {
		got := findings(c.host, func(p *checkup) { p.runcEscapes(t.Context(), "/runc", c.version) })
		if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %s; want %q", c.version, got, c.want)
		}
	}
}

// TestRuncEscapesRPM checks that an rpm package counts as fixed if its changelog names all fixes.
func TestRuncEscapesRPM(t *testing.T) {
	for name, c := range map[string]struct {
		changes   string
		want, not string
		fails     error
	}{
		"unpatched":                   {"- rebase to 1.1.9", "package 1.1.9-1.el9): a container may escape through CVE-2024-21626; CVE-2025-31133", "", nil},
		"one":                         {"- Fix CVE-2024-21626", "CVE-2025-31133", "21626", nil},
		"two of three are not enough": {"- CVE-2024-21626\n- CVE-2025-31133, CVE-2025-52565", "CVE-2025-52881", "21626", nil},
		"all":                         {"- CVE-2024-21626\n- CVE-2025-31133 CVE-2025-52565\n- CVE-2025-52881", "ok runtime-escapes", "CVE", nil},
		"no package":                  {"", "a container can escape through", "package", errors.New("package runc is not installed")},
	} {
		got := findings(nil, func(p *checkup) {
			p.sys.Find = func(program string) (string, error) { return "/bin/" + program, nil }
			p.sys.Output = func(_ context.Context, path string, args ...string) (string, error) {
				switch {
				case path != "/bin/rpm" || args[len(args)-1] != "runc":
					t.Errorf("%s %v was run", path, args)
				case args[1] == "--changelog":
					return c.changes, c.fails
				}
				return "1.1.9-1.el9\n", c.fails
			}
			p.runcEscapes(t.Context(), "/runc", "runc version 1.1.9")
		})
		if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %s; want %q", name, got, c.want)
		}
	}
}

// TestMemoryVolumes checks that the doctor warns if Secrets may be written to the swap device.
func TestMemoryVolumes(t *testing.T) {
	const off, on = "Filename\tType\tSize\n", "Filename\tType\tSize\n/dev/sda2 partition 1\n"
	for _, c := range []struct {
		kernel, swaps string
		warns         bool
	}{{"6.1.0-18-amd64", on, true}, {"5.15.0", on, true}, {"6.4.0", on, false}, {"6.12.1", on, false}, {"7.0", on, false}, {"6.1.0", off, false}} {
		got := findings(map[string]string{"proc/sys/kernel/osrelease": c.kernel, "proc/swaps": c.swaps}, func(p *checkup) { p.checkSwap(t.Context()) })
		if strings.Contains(got, "warning memory-volumes") != c.warns {
			t.Errorf("kernel %s, swaps %q: %s", c.kernel, c.swaps, got)
		}
	}
}

func TestConfinement(t *testing.T) {
	const enforce, contexts = "sys/fs/selinux/enforce", "etc/selinux/targeted/contexts/lxc_contexts"
	const enabled, profiles = "sys/module/apparmor/parameters/enabled", "sys/kernel/security/apparmor/profiles"
	for name, c := range map[string]struct {
		host map[string]string
		want []string
	}{
		"nothing":   {nil, []string{"ok apparmor AppArmor is off", "ok selinux"}},
		"no parser": {map[string]string{enabled: "Y\n", profiles: "x (enforce)\n"}, []string{"warning apparmor"}},
		"hidden":    {map[string]string{enabled: "Y\n"}, []string{"warning apparmor AppArmor is on, but its profiles"}},
		"loaded":    {map[string]string{enabled: "Y\n", profiles: "islet-default (enforce)\n"}, []string{"ok apparmor"}},
		"no policy": {map[string]string{enforce: "1", "etc/selinux/config": "SELINUX=enforcing\nSELINUXTYPE=mls\n", contexts: "x"}, []string{"warning selinux SELinux is enabled, but its policy mls"}},
		"enforcing": {map[string]string{enforce: "1", contexts: "x"}, []string{"info selinux SELinux is enforcing"}},
		"lenient":   {map[string]string{enforce: "0", contexts: "x", "etc/selinux/config": "SELINUXTYPE=targeted"}, []string{"info selinux SELinux is permissive"}},
	} {
		got := findings(c.host, func(p *checkup) { p.checkConfinement(context.Background()) })
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %s; want %s", name, got, w)
			}
		}
	}
}
