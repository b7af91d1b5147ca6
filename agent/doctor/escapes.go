package doctor

import (
	"context"
	"fmt"
	"strings"
)

// An escape is a fault of runc by which a container reaches the host, and the
// releases that have it no more: of each minor version its first.
type escape struct {
	cves    string
	fixed   []release // in order; what is newer than the last is fixed too
	debians []string  // versions of Debian's package to which the fix was ported back, without what follows
}

type release struct{ major, minor, patch int }

func escapes() []escape {
	return []escape{
		{"CVE-2024-21626", []release{{1, 1, 12}}, []string{"1.1.5+ds1-1+deb12u", "1.0.0~rc93+ds1-5+deb11u3"}},
		{"CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881", []release{{1, 2, 8}, {1, 3, 3}, {1, 4, 0}}, nil},
	}
}

// runcEscapes warns of a runc with known escapes. A distribution ports fixes back
// and leaves the version as it is, so its package's version counts where it is
// known to have a fix; where it is not known, that is said.
func (p *patient) runcEscapes(ctx context.Context, path, first string) {
	var v release
	if n, _ := fmt.Sscanf(strings.TrimPrefix(first, "runc version "), "%d.%d.%d", &v.major, &v.minor, &v.patch); n < 2 ||
		!strings.HasPrefix(first, "runc ") {
		return
	}
	packaged, advice := p.packageVersion("runc"), "apt changelog runc"
	changes := ""
	if packaged == "" {
		packaged, changes = p.rpm(ctx, "runc")
		advice = "rpm -q --changelog runc"
	}
	var open []string
	for _, e := range escapes() {
		if !e.fixedIn(v) && !e.portedTo(packaged) && !mentionsAll(changes, e.cves) {
			open = append(open, e.cves)
		}
	}
	switch list := strings.Join(open, "; "); {
	case list == "":
		p.add("runtime-escapes", OK, "", "%s has no escape that is known to this program", path)
	case packaged != "":
		p.add("runtime-escapes", Warning, "see whether the package has the fixes: "+advice+"; else upgrade runc, or use crun",
			"%s is %s by its version (package %s): a container may escape by %s", path, strings.TrimPrefix(first, "runc version "),
			packaged, list)
	default:
		p.add("runtime-escapes", Warning, "upgrade runc to 1.2.8, 1.3.3 or later, or use crun", "%s (%s): a container can escape by %s",
			path, first, list)
	}
}

func (e escape) fixedIn(v release) bool {
	for _, f := range e.fixed {
		if v.major == f.major && v.minor == f.minor {
			return v.patch >= f.patch
		}
	}
	last := e.fixed[len(e.fixed)-1]
	return v.major > last.major || v.major == last.major && v.minor > last.minor
}

func (e escape) portedTo(version string) bool {
	for _, d := range e.debians {
		if strings.HasPrefix(version, d) {
			return true
		}
	}
	return false
}

// packageVersion is the installed version of a Debian package; empty where there
// is none. Nothing is run for it.
func (p *patient) packageVersion(name string) string {
	for paragraph := range strings.SplitSeq(p.file("var/lib/dpkg/status"), "\n\n") {
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

// rpm is the installed version of a package, and what was changed in it, where rpm
// manages packages; else empty. Its database has no form that others read.
func (p *patient) rpm(ctx context.Context, name string) (version, changes string) {
	path, err := p.sys.Find("rpm")
	if err != nil {
		return "", ""
	}
	version, err = p.sys.Output(ctx, path, "-q", "--queryformat", "%{VERSION}-%{RELEASE}", name)
	if err != nil { // not of a package
		return "", ""
	}
	changes, _ = p.sys.Output(ctx, path, "-q", "--changelog", name)
	return strings.TrimSpace(version), changes
}

// mentionsAll says whether a package's changes name each of the faults: distributions
// write there what they have ported back.
func mentionsAll(changes, cves string) bool {
	for word := range strings.FieldsFuncSeq(cves, func(r rune) bool { return r == ' ' || r == ',' }) {
		if strings.HasPrefix(word, "CVE-") && !strings.Contains(changes, word) {
			return false
		}
	}
	return true
}

// confinement tells which mandatory access control there is.
func (p *patient) confinement(context.Context) {
	switch on := strings.HasPrefix(p.file("sys/module/apparmor/parameters/enabled"), "Y"); {
	case !on:
		p.add("apparmor", OK, "", "AppArmor is off; pods that ask for its profiles are refused")
	case !p.exists("sys/kernel/security/apparmor/profiles"):
		p.add("apparmor", Warning, "mount -t securityfs securityfs /sys/kernel/security", "AppArmor is on, but its profiles cannot be seen")
	default:
		if _, err := p.sys.Find("apparmor_parser"); err != nil &&
			!strings.Contains(p.file("sys/kernel/security/apparmor/profiles"), "islet-default (") {
			p.add("apparmor", Warning, "apt install apparmor",
				"AppArmor is on, but containers run without its default profile: apparmor_parser is not installed")
			break
		}
		p.add("apparmor", OK, "", "AppArmor is on, and containers get its default profile")
	}
	p.selinux()
}

// selinux tells what comes of seLinuxOptions here.
func (p *patient) selinux() {
	policy := "targeted"
	for line := range strings.Lines(p.file("etc/selinux/config")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "SELINUXTYPE="); ok {
			policy = name
		}
	}
	switch enforce := p.file("sys/fs/selinux/enforce"); {
	case enforce == "":
		p.add("selinux", OK, "", "SELinux is off; pods with seLinuxOptions are refused")
	case !p.exists("etc/selinux/" + policy + "/contexts/lxc_contexts"):
		p.add("selinux", Warning, "dnf install container-selinux",
			"SELinux is on, but its policy %s has no labels for containers: those with seLinuxOptions cannot be created", policy)
	case enforce != "1":
		p.add("selinux", Info, "nothing, or setenforce 1",
			"SELinux is permissive: containers with seLinuxOptions get their labels, but nothing is denied")
	default:
		p.add("selinux", Info, "give pods seLinuxOptions to confine them",
			"SELinux enforces: containers with seLinuxOptions get their labels, the others run as the agent does, without one")
	}
}
