package doctor

import (
	"context"
	"fmt"
	"strings"
)

// A vulnerability of runc lets a container access the host.
type vulnerability struct {
	cves    string
	fixed   []release // the first fixed release of each minor version, in ascending order; newer minor versions are fixed as well
	debians []string  // prefixes of the Debian package versions with a backported fix
}

type release struct{ major, minor, patch int }

func vulnerabilities() []vulnerability {
	return []vulnerability{
		{"CVE-2024-21626", []release{{1, 1, 12}}, []string{"1.1.5+ds1-1+deb12u", "1.0.0~rc93+ds1-5+deb11u3"}},
		{"CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881", []release{{1, 2, 8}, {1, 3, 3}, {1, 4, 0}}, nil},
	}
}

// runcEscapes warns about a runc with known vulnerabilities that let a container access the host. A distribution
// may backport a fix without changing runc's own version. So a package that is known to contain the fixes counts as
// fixed. For other packages, the finding advises to check whether the package contains the fixes.
func (p *checkup) runcEscapes(ctx context.Context, path, versionLine string) {
	var v release
	if n, _ := fmt.Sscanf(strings.TrimPrefix(versionLine, "runc version "), "%d.%d.%d", &v.major, &v.minor, &v.patch); n < 2 ||
		!strings.HasPrefix(versionLine, "runc ") {
		return
	}
	packaged, advice := p.packageVersion("runc"), "apt changelog runc"
	changes := ""
	if packaged == "" {
		packaged, changes = p.queryRPM(ctx, "runc")
		advice = "rpm -q --changelog runc"
	}
	var open []string
	for _, e := range vulnerabilities() {
		if !e.isFixedIn(v) && !e.hasBackportIn(packaged) && !mentionsAll(changes, e.cves) {
			open = append(open, e.cves)
		}
	}
	switch list := strings.Join(open, "; "); {
	case list == "":
		p.add("runtime-escapes", OK, "", "%s has no known container escape vulnerability", path)
	case packaged != "":
		p.add("runtime-escapes", Warning, "check whether the package contains the fixes: "+advice+"; else upgrade runc, or use crun",
			"%s has version %s (package %s): a container may escape through %s", path, strings.TrimPrefix(versionLine, "runc version "),
			packaged, list)
	default:
		p.add("runtime-escapes", Warning, "upgrade runc to 1.2.8, 1.3.3 or later, or use crun",
			"%s (%s): a container can escape through %s", path, versionLine, list)
	}
}

func (e vulnerability) isFixedIn(v release) bool {
	for _, f := range e.fixed {
		if v.major == f.major && v.minor == f.minor {
			return v.patch >= f.patch
		}
	}
	last := e.fixed[len(e.fixed)-1]
	return v.major > last.major || v.major == last.major && v.minor > last.minor
}

func (e vulnerability) hasBackportIn(version string) bool {
	for _, d := range e.debians {
		if strings.HasPrefix(version, d) {
			return true
		}
	}
	return false
}

// packageVersion returns the installed version of a Debian package. It returns "" if the package is not installed. It
// reads dpkg's status file and runs no program.
func (p *checkup) packageVersion(name string) string {
	for paragraph := range strings.SplitSeq(p.readText("var/lib/dpkg/status"), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if k, v, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
				fields[k] = strings.TrimSpace(v)
			}
		}
		if fields["Package"] == name && strings.HasSuffix(fields["Status"], " installed") {
			return fields["Version"]
		}
	}
	return ""
}

// queryRPM returns the installed version of a package of an rpm distribution, and the change log of the package. Both are
// empty if the package is not installed, or if the host has no program rpm. queryRPM runs the program rpm, because the
// format of rpm's database depends on the distribution.
func (p *checkup) queryRPM(ctx context.Context, name string) (version, changes string) {
	path, err := p.sys.Find("rpm")
	if err != nil {
		return "", ""
	}
	version, err = p.sys.Output(ctx, path, "-q", "--queryformat", "%{VERSION}-%{RELEASE}", name)
	if err != nil { // the package is not installed
		return "", ""
	}
	changes, _ = p.sys.Output(ctx, path, "-q", "--changelog", name)
	return strings.TrimSpace(version), changes
}

// mentionsAll reports whether a package's change log mentions each of the CVEs. Distributions list backported fixes
// in the change log.
func mentionsAll(changes, cves string) bool {
	for word := range strings.FieldsFuncSeq(cves, func(r rune) bool { return r == ' ' || r == ',' }) {
		if strings.HasPrefix(word, "CVE-") && !strings.Contains(changes, word) {
			return false
		}
	}
	return true
}

// checkConfinement checks AppArmor and SELinux.
func (p *checkup) checkConfinement(context.Context) {
	switch on := strings.HasPrefix(p.readText("sys/module/apparmor/parameters/enabled"), "Y"); {
	case !on:
		p.add("apparmor", OK, "", "AppArmor is off; pods that set an AppArmor profile are rejected")
	case !p.exists("sys/kernel/security/apparmor/profiles"):
		p.add("apparmor", Warning, "mount -t securityfs securityfs /sys/kernel/security", "AppArmor is on, but its profiles cannot be read")
	default:
		if _, err := p.sys.Find("apparmor_parser"); err != nil &&
			!strings.Contains(p.readText("sys/kernel/security/apparmor/profiles"), "islet-default (") {
			p.add("apparmor", Warning, "apt install apparmor",
				"AppArmor is on, but containers run without its default profile: apparmor_parser is not installed")
			break
		}
		p.add("apparmor", OK, "", "AppArmor is on, and containers get its default profile")
	}
	p.checkSELinux()
}

// checkSELinux reports how seLinuxOptions work on this host.
func (p *checkup) checkSELinux() {
	policy := "targeted"
	for line := range strings.Lines(p.readText("etc/selinux/config")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "SELINUXTYPE="); ok {
			policy = name
		}
	}
	switch enforce := p.readText("sys/fs/selinux/enforce"); {
	case enforce == "":
		p.add("selinux", OK, "", "SELinux is off; pods with seLinuxOptions are rejected")
	case !p.exists("etc/selinux/" + policy + "/contexts/lxc_contexts"):
		p.add("selinux", Warning, "dnf install container-selinux",
			"SELinux is enabled, but its policy %s has no labels for containers: containers with seLinuxOptions cannot be created", policy)
	case enforce != "1":
		p.add("selinux", Info, "no action is needed; setenforce 1 enforces the policy",
			"SELinux is permissive: containers with seLinuxOptions get their labels, but nothing is denied")
	default:
		p.add("selinux", Info, "give pods seLinuxOptions to confine them",
			"SELinux is enforcing: containers with seLinuxOptions get their labels, other containers run with the agent's context")
	}
}
