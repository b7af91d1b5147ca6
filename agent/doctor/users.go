package doctor

import (
	"context"
	"slices"
	"strings"
)

// unshifting are file systems that cannot shift the owners of their files into a user
// namespace.
// https://man7.org/linux/man-pages/man2/mount_setattr.2.html
func unshifting() []string {
	return []string{"nfs", "nfs4", "cifs", "smb3", "9p", "overlay", "ecryptfs"}
}

// users says whether pods can have a user namespace (hostUsers: false), and if not why.
// Few ask for one, so that it is no more than worth knowing.
// https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/#before-you-begin
func (p *patient) users(context.Context) {
	const id, pods = "user-namespaces", "pods with hostUsers: false do not start: "
	major, minor, known := kernelVersion(p.file("proc/sys/kernel/osrelease"))
	since := func(a, b int) bool { return !known || major > a || major == a && minor >= b }
	switch {
	case !p.exists("proc/self/ns/user"):
		p.add(id, Info, "use a kernel with CONFIG_USER_NS", pods+"the kernel is built without user namespaces")
		return
	case p.file("proc/sys/user/max_user_namespaces") == "0":
		p.add(id, Info, "set the sysctl user.max_user_namespaces to 1000 or more", pods+"user.max_user_namespaces is 0")
		return
	case !since(5, 19):
		p.add(id, Info, "upgrade to kernel 6.3 or later", pods+"kernel %d.%d cannot shift the owners in an overlay (5.19 can)", major,
			minor)
		return
	}
	if path, able := p.usersRuntime(); !able {
		p.add(id, Info, "install runc 1.2 or crun 1.9, or later", pods+"%s has no idmapped mounts", path)
		return
	}
	if !since(6, 3) {
		p.add(id, Info, "upgrade to kernel 6.3 or later",
			"of pods with hostUsers: false those with volumes in memory (Secrets, tokens) do not start: kernel %d.%d cannot shift the "+
				"owners in a tmpfs", major, minor)
		return
	}
	for what, dir := range map[string]string{"volumes": p.RootDir, "images": p.StateDir} {
		m := p.mountOf(dir)
		if slices.Contains(unshifting(), m.kind) || strings.HasPrefix(m.kind, "fuse") {
			p.add(id, Info, "put "+dir+" on a local file system, such as ext4",
				pods+"the %s in %s are on %s, which cannot shift the owners of its files", what, dir, m.kind)
			return
		}
	}
	p.add(id, OK, "", "pods can have a user namespace (hostUsers: false)")
}

// usersRuntime asks the OCI runtime that is used, or would be.
func (p *patient) usersRuntime() (path string, able bool) {
	names := p.ociRuntimes()
	path = strings.Join(names, ", ")
	for _, name := range names {
		found, err := p.sys.Find(name)
		if err == nil && p.sys.Users(found) {
			return found, true
		}
		if err == nil {
			path = found
		}
	}
	return path, false
}
