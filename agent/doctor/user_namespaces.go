package doctor

import (
	"context"
	"slices"
	"strings"
)

// withoutIDMap returns file systems without idmapped mounts:
// https://man7.org/linux/man-pages/man2/mount_setattr.2.html
func withoutIDMap() []string {
	return []string{"nfs", "nfs4", "cifs", "smb3", "9p", "overlay", "ecryptfs"}
}

// checkUserNamespaces checks whether pods can have a user namespace (hostUsers: false). A problem is only an Info, because few pods
// use a user namespace. https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/#before-you-begin
func (p *checkup) checkUserNamespaces(context.Context) {
	const id, pods = "user-namespaces", "pods with hostUsers: false do not start: "
	major, minor, known := kernelVersion(p.readText("proc/sys/kernel/osrelease"))
	since := func(a, b int) bool { return !known || major > a || major == a && minor >= b }
	switch {
	case !p.exists("proc/self/ns/user"):
		p.add(id, Info, "use a kernel with CONFIG_USER_NS", pods+"the kernel is built without user namespaces")
		return
	case p.readText("proc/sys/user/max_user_namespaces") == "0":
		p.add(id, Info, "set the sysctl user.max_user_namespaces to 1000 or more", pods+"user.max_user_namespaces is 0")
		return
	case !since(5, 19):
		p.add(id, Info, "upgrade to kernel 6.3 or later", pods+"kernel %d.%d has no idmapped mounts for overlayfs (5.19 has)", major,
			minor)
		return
	}
	if path, able := p.usersRuntime(); !able {
		p.add(id, Info, "install runc 1.2 or crun 1.9, or later", pods+"%s has no idmapped mounts", path)
		return
	}
	if !since(6, 3) {
		p.add(id, Info, "upgrade to kernel 6.3 or later",
			"pods with hostUsers: false and volumes in memory (Secrets, tokens) do not start: kernel %d.%d has no idmapped "+
				"mounts for tmpfs", major, minor)
		return
	}
	for what, dir := range map[string]string{"volumes": p.RootDir, "images": p.StateDir} {
		m := p.mountOf(dir)
		if slices.Contains(withoutIDMap(), m.kind) || strings.HasPrefix(m.kind, "fuse") {
			p.add(id, Info, "put "+dir+" on a local file system, such as ext4",
				pods+"the %s in %s are on %s, which has no idmapped mounts", what, dir, m.kind)
			return
		}
	}
	p.add(id, OK, "", "pods can have a user namespace (hostUsers: false)")
}

// usersRuntime returns the path of the first installed OCI runtime that supports user namespaces, and true. If there
// is no such runtime, it returns false and a text for the message. The text is the path of the last installed
// runtime. If no runtime is installed, the text contains the names of all runtimes that were tried.
func (p *checkup) usersRuntime() (path string, able bool) {
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
