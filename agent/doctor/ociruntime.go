package doctor

import (
	"context"
	"fmt"
	"strings"
)

// patchMark is a text in the output of crun --version if packaging/oci/build.sh has built this
// crun.
const patchMark = "with islet's patches"

// checkRuntime checks that an OCI runtime is installed and works. Without islet's patches, crun does not run on a hybrid
// host that has a controller in the v2 hierarchy.
func (p *checkup) checkRuntime(ctx context.Context) {
	names := p.ociRuntimes()
	works := 0
	for _, name := range names {
		path, err := p.sys.Find(name)
		if err != nil {
			continue
		}
		out, err := p.sys.Output(ctx, path, "--version")
		first, _, _ := strings.Cut(out, "\n")
		if works == 0 || p.ShippedOCI == "" { // a runtime that comes after the shipped one in the list is never used
			p.runcEscapes(ctx, path, first)
		}
		id := "runtime-" + name[strings.LastIndex(name, "/")+1:]
		if name == p.ShippedOCI {
			id = "runtime-shipped"
		}
		switch {
		case err != nil:
			p.add(id, Warning, "reinstall it", "%s does not run: %v", path, err)
		case isOld(first):
			works++
			p.add(id, Warning, "upgrade to crun 1.8 or runc 1.1", "%s is old (%s)", path, first)
		case name != p.ShippedOCI && strings.HasPrefix(first, "crun") && !strings.Contains(out, patchMark) &&
			p.cgroupMode() == cgroupHybrid && len(strings.Fields(p.readText("sys/fs/cgroup/unified/cgroup.controllers"))) > 0:
			p.add(id, Info, "nothing if runc is installed too; else install runc, or boot with cgroup v2 only",
				"%s (%s) does not run on a host with hybrid cgroups, such as this one", path, first)
		default:
			works++
			p.add(id, OK, "", "%s (%s)", path, first)
		}
	}
	if works == 0 {
		p.add("runtime", Error, "install one: apt install crun (or runc)", "no OCI runtime works here (looked for %s)",
			strings.Join(names, ", "))
	}
}

// ociRuntimes returns the names or paths of the OCI runtimes that the agent tries, in this order.
func (p *checkup) ociRuntimes() []string {
	switch {
	case p.OCIRuntime != "":
		return []string{p.OCIRuntime}
	case p.ShippedOCI != "":
		return []string{p.ShippedOCI, "crun", "runc"}
	}
	return []string{"crun", "runc"}
}

// isOld reports whether a runtime lacks features that islet needs. The parameter is the first line that the runtime
// prints for --version.
func isOld(version string) bool {
	var name string
	var major, minor int
	fields := strings.Fields(strings.ReplaceAll(version, "version ", ""))
	if len(fields) < 2 {
		return false
	}
	name = fields[0]
	if n, _ := fmt.Sscanf(fields[1], "%d.%d", &major, &minor); n < 2 {
		return false
	}
	switch name {
	case "crun":
		return major < 1 // every crun 1.x is new enough
	case "runc":
		return major < 1 || major == 1 && minor < 1
	}
	return false
}
