package crisuite

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UserNamespace returns a user namespace of 65536 IDs, which are mapped to the IDs of the host starting at
// first.
func UserNamespace(first uint32) *api.UserNamespace {
	ids := []*api.IDMapping{{HostId: first, Length: 65536}}
	return &api.UserNamespace{Mode: api.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// usersFor sets the user namespace Users in the configuration of a sandbox, unless the sandbox
// shares the host's PID or IPC namespace. It reports whether the user namespace was set.
func (b *bench) usersFor(c *api.PodSandboxConfig) bool {
	o := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if b.Users == nil || o == nil || o.Pid == api.NamespaceMode_NODE || o.Ipc == api.NamespaceMode_NODE {
		return false
	}
	if b.mapped == nil {
		b.mapped = map[string]bool{}
	}
	o.UsernsOptions = b.Users
	return true
}

// mapContainer sets the user namespace of the sandbox for a container and its mounts, like a
// kubelet.
func (b *bench) mapContainer(pod string, c *api.ContainerConfig) {
	if !b.mapped[pod] {
		return
	}
	l := c.GetLinux()
	if l.GetSecurityContext() == nil {
		l.SecurityContext = &api.LinuxContainerSecurityContext{}
	}
	if l.SecurityContext.NamespaceOptions == nil {
		l.SecurityContext.NamespaceOptions = &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER}
	}
	l.SecurityContext.NamespaceOptions.UsernsOptions = b.Users
	for _, m := range c.Mounts {
		m.UidMappings, m.GidMappings = b.Users.Uids, b.Users.Gids
	}
}

// tryCreate is like create, but returns the error.
func (b *bench) tryCreate(pod string, cfg *api.PodSandboxConfig, c *api.ContainerConfig) error {
	b.mapContainer(pod, c)
	_, err := b.Runtime.CreateContainer(b.ctx, &api.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: cfg})
	return err
}

// hostOrOwn returns the first text if the containers run in the host's user namespace (Users is nil), and otherwise the second one.
func (b *bench) hostOrOwn(host, own string) string {
	if b.Users != nil {
		return own
	}
	return host
}

// onHost converts the UID of an allowance to the UID on the host.
func (b *bench) onHost(a allowance) allowance {
	if len(b.mapped) == 0 {
		return a
	}
	uid, err := strconv.Atoi(a.uid)
	if err != nil {
		b.Fatal(err)
	}
	a.root, a.uid = uid == 0, strconv.Itoa(int(b.Users.Uids[0].HostId)+uid)
	return a
}

// expectUsers checks that a process is in the user namespace Users if its pod has a user namespace.
func (b *bench) expectUsers(what string, pid int) {
	b.Helper()
	own := namespaceOf(b, pid, "user") != namespaceOf(b, os.Getpid(), "user")
	if own != (len(b.mapped) > 0) {
		b.Errorf("%s is in a user namespace: %v", what, own)
	}
	if !own {
		return
	}
	for _, name := range []string{"uid_map", "gid_map"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		got, want := strings.Join(strings.Fields(string(raw)), " "), fmt.Sprintf("0 %d %d", b.Users.Uids[0].HostId, b.Users.Uids[0].Length)
		if err != nil || got != want {
			b.Errorf("%s has %s %q, want %q: %v", what, name, got, want, err)
		}
	}
}

// hasUsers reports whether the runtime handler supports user namespaces.
func (b *bench) hasUsers() bool {
	for _, h := range must(b.Runtime.Status(b.ctx, &api.StatusRequest{}))(b).RuntimeHandlers {
		if h.Name == b.Handler {
			return h.GetFeatures().GetUserNamespaces()
		}
	}
	return false
}

// usersBench sets Users. It skips the test if the runtime handler does not support user namespaces.
func (b *bench) usersBench() {
	if !b.hasUsers() {
		b.Skip("the runtime does not support user namespaces")
	}
	if b.Users == nil {
		b.Users = UserNamespace(5 << 16)
	}
}

// testUserNamespaces checks pods with a user namespace (KEP-127). Their root user is an
// unprivileged user on the host. The owners of files in volumes do not change on disk.
func testUserNamespaces(t *testing.T, b *bench) {
	b.usersBench()
	b.expectUsersRejected()
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	first := b.Users.Uids[0].HostId
	mapped, plain := b.openDir("mapped"), b.openDir("plain")
	if err := os.WriteFile(mapped+"/stranger", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(mapped+"/stranger", 70000, int(first)); err != nil { // neither ID is mapped
		t.Fatal(err)
	}
	c := b.containerConfig("main", "write", "/mapped/new", "x", "write", "/new", "x",
		"write", "/dev/stdout", "to stdout\n", "write", "/dev/shm/new", "x",
		"write", "/proc/sys/net/ipv4/ip_forward", "1", "write", "/proc/sys/net/ipv4/ip_unprivileged_port_start", "7",
		"put", "/proc/sys/kernel/core_pattern", "|/prog", "put", "/mapped/stranger", "x",
		"opens", "/proc/1/root/etc/hosts", "owner", "/", "owner", "/prog", "owner", "/etc/hosts", "owner", "/new",
		"owner", "/mapped/new", "owner", "/mapped/stranger", "owner", "/plain", "owner", "/image/prog",
		"read", "/proc/self/uid_map", "put", "/plain/new", "x", "wait")
	c.Linux.SecurityContext.Capabilities = &api.Capability{AddCapabilities: []string{"NET_ADMIN", "SYS_ADMIN"}}
	c.Mounts = []*api.Mount{{ContainerPath: "/mapped", HostPath: mapped}, {ContainerPath: "/image", Image: &api.ImageSpec{Image: ImageRef}}}
	b.mapContainer(pod, c)
	c.Mounts = append(c.Mounts, &api.Mount{ContainerPath: "/plain", HostPath: plain})
	id := must(b.Runtime.CreateContainer(b.ctx, &api.CreateContainerRequest{
		PodSandboxId: pod, Config: c, SandboxConfig: cfg,
	}))(b).ContainerId
	b.start(id)
	b.awaitLog(c, "waiting")
	want := []string{
		"to stdout", "permission denied", "permission denied", "open: <nil>", "0 0", "0 0", "0 0", "0 0", "0 0",
		"65534 65534", "65534 65534", "0 0", fmt.Sprintf("0 %d 65536", first), "put: <nil>",
	}
	lines := strings.Split(strings.TrimSpace(b.readLog(c)), "\n")
	for i, w := range want {
		if i >= len(lines) || !strings.Contains(strings.Join(strings.Fields(lines[i]), " "), w) {
			t.Errorf("line %d is not %q:\n%s", i, w, b.readLog(c))
			break
		}
	}
	b.expectOwner(mapped+"/new", 0)
	b.expectOwner(plain+"/new", first)
	pid := b.containerPID(id)
	b.expectOwner(fmt.Sprintf("/proc/%d/root/new", pid), first)
	b.expectOwner(fmt.Sprintf("/proc/%d/root/dev/shm/new", pid), first)
	b.expectUsers("the container", pid)
	out := must(b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{
		"/prog", "write", "/dev/stdout", "hello\n", "write", "/dev/stderr", "hello\n", "id", "read", "/proc/self/uid_map",
	}}))(b)
	got := strings.Join(strings.Fields(string(out.Stdout)), " ")
	if !strings.HasPrefix(got, "hello 0 0 [0] 0 "+fmt.Sprint(first)) || string(out.Stderr) != "hello\n" {
		t.Errorf("a command printed %q and %q", out.Stdout, out.Stderr)
	}
	st := must(b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: pod}))(b)
	if st.Status.Linux.Namespaces.Options.GetUsernsOptions().GetUids()[0].GetHostId() != first {
		t.Errorf("the status has the user namespace %v", st.Status.Linux.Namespaces.Options)
	}
	b.otherUsers(pid)
	b.unmappedUsers(pod, cfg)
}

// expectUsersRejected checks that invalid user namespaces are rejected.
func (b *bench) expectUsersRejected() {
	one := func(container, host, length uint32) []*api.IDMapping {
		return []*api.IDMapping{{ContainerId: container, HostId: host, Length: length}}
	}
	good := one(0, 65536, 65536)
	for name, u := range map[string]*api.UserNamespace{
		"no mappings":         {Mode: api.NamespaceMode_POD},
		"no GIDs":             {Mode: api.NamespaceMode_POD, Uids: good},
		"two":                 {Mode: api.NamespaceMode_POD, Uids: append(one(0, 65536, 10), one(10, 1<<17, 10)...), Gids: good},
		"root is not mapped":  {Mode: api.NamespaceMode_POD, Uids: one(1, 65536, 10), Gids: one(1, 65536, 10)},
		"the host's root":     {Mode: api.NamespaceMode_POD, Uids: good, Gids: one(0, 0, 65536)},
		"empty":               {Mode: api.NamespaceMode_POD, Uids: one(0, 65536, 0), Gids: good},
		"beyond all IDs":      {Mode: api.NamespaceMode_POD, Uids: one(0, 1<<32-65536, 65536), Gids: good},
		"nil":                 {Mode: api.NamespaceMode_POD, Uids: []*api.IDMapping{nil}, Gids: []*api.IDMapping{nil}},
		"node, with mappings": {Mode: api.NamespaceMode_NODE, Uids: good, Gids: good},
		"container":           {Mode: api.NamespaceMode_CONTAINER},
		"target":              {Mode: api.NamespaceMode_TARGET},
	} {
		b.expectPodRejected(name, func(o *api.NamespaceOption) { o.UsernsOptions = u })
	}
	b.expectPodRejected("the host's processes", func(o *api.NamespaceOption) { o.UsernsOptions, o.Pid = b.Users, api.NamespaceMode_NODE })
	b.expectPodRejected("the host's IPC", func(o *api.NamespaceOption) { o.UsernsOptions, o.Ipc = b.Users, api.NamespaceMode_NODE })
}

func (b *bench) expectPodRejected(name string, change func(*api.NamespaceOption)) {
	b.Helper()
	cfg := b.podConfig(func(c *api.PodSandboxConfig) { change(c.Linux.SecurityContext.NamespaceOptions) })
	if s, err := b.Runtime.RunPodSandbox(b.ctx, &api.RunPodSandboxRequest{Config: cfg, RuntimeHandler: b.Handler}); err == nil {
		b.sandboxes = append(b.sandboxes, s.PodSandboxId)
		b.Errorf("%s: a sandbox was started", name)
	}
}

// otherUsers checks that another pod can have another user namespace.
func (b *bench) otherUsers(first int) {
	b.Helper()
	users := b.Users
	b.Users = UserNamespace(users.Uids[0].HostId + 65536)
	defer func() { b.Users = users }()
	cfg := b.podConfig(func(c *api.PodSandboxConfig) { c.Metadata.Name, c.Metadata.Uid = "other", b.uid+"-other" })
	pod := b.runPod(cfg)
	c := b.containerConfig("other", "wait")
	id := b.create(pod, cfg, c)
	b.start(id)
	b.awaitLog(c, "waiting")
	pid := b.containerPID(id)
	b.expectUsers("the container of another pod", pid)
	if namespaceOf(b, pid, "user") == namespaceOf(b, first, "user") {
		b.Error("two pods have the same user namespace")
	}
}

// unmappedUsers checks that users and mounts that do not match the user namespace of the pod are
// rejected.
func (b *bench) unmappedUsers(pod string, cfg *api.PodSandboxConfig) {
	b.Helper()
	id := func(n int64) *api.Int64Value { return &api.Int64Value{Value: n} }
	dir := b.openDir("refused")
	for name, change := range map[string]func(*api.ContainerConfig){
		"user": func(c *api.ContainerConfig) { c.Linux.SecurityContext.RunAsUser = id(65536) },
		"group": func(c *api.ContainerConfig) {
			c.Linux.SecurityContext.RunAsUser, c.Linux.SecurityContext.RunAsGroup = id(1), id(70000)
		},
		"groups":       func(c *api.ContainerConfig) { c.Linux.SecurityContext.SupplementalGroups = []int64{65536} },
		"processes":    func(c *api.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_NODE },
		"no namespace": func(c *api.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = nil },
		"another namespace": func(c *api.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = UserNamespace(9 << 16)
		},
		"mount": func(c *api.ContainerConfig) {
			uids := UserNamespace(9 << 16).Uids
			c.Mounts = []*api.Mount{{ContainerPath: "/x", HostPath: dir, UidMappings: uids, GidMappings: b.Users.Gids}}
		},
	} {
		c := b.containerConfig("refused " + name)
		b.mapContainer(pod, c)
		change(c)
		if _, err := b.Runtime.CreateContainer(b.ctx, &api.CreateContainerRequest{
			PodSandboxId: pod, Config: c, SandboxConfig: cfg,
		}); err == nil {
			b.Errorf("%s: a container was created", name)
		}
	}
	last := b.containerConfig("last", "id")
	last.Linux.SecurityContext.RunAsUser, last.Linux.SecurityContext.RunAsGroup = id(65535), id(65535)
	if out, _ := b.runForOutput(pod, cfg, last); !strings.HasPrefix(out, "65535 65535") {
		b.Errorf("the last mapped user printed %q", out)
	}
}

// openDir creates a directory that is writable for every user.
func (b *bench) openDir(name string) string {
	b.Helper()
	dir := b.TempDir() + "/" + name
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		b.Fatal(err)
	}
	return dir
}

// expectOwner checks the UID and GID of a file on the host.
func (b *bench) expectOwner(path string, uid uint32) {
	b.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		b.Error(err)
		return
	}
	if s := st.Sys().(*syscall.Stat_t); s.Uid != uid || s.Gid != uid {
		b.Errorf("%s has UID %d and GID %d, want %d", path, s.Uid, s.Gid, uid)
	}
}

// testNoUserNamespaces checks that a runtime without support for user namespaces rejects them.
func testNoUserNamespaces(t *testing.T, b *bench) {
	if b.hasUsers() {
		t.Skip("the runtime supports user namespaces")
	}
	users := UserNamespace(65536)
	cfg := b.podConfig(func(c *api.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users })
	if s, err := b.Runtime.RunPodSandbox(b.ctx, &api.RunPodSandboxRequest{Config: cfg}); err == nil {
		b.sandboxes = append(b.sandboxes, s.PodSandboxId)
		t.Error("a sandbox was started")
	}
	cfg = b.podConfig()
	pod := b.runPod(cfg)
	for name, change := range map[string]func(*api.ContainerConfig){
		"namespace": func(c *api.ContainerConfig) { c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users },
		"mount": func(c *api.ContainerConfig) {
			c.Mounts = []*api.Mount{{ContainerPath: "/x", HostPath: b.logs, UidMappings: users.Uids, GidMappings: users.Gids}}
		},
	} {
		c := b.containerConfig(name)
		change(c)
		if err := b.tryCreate(pod, cfg, c); err == nil {
			t.Errorf("%s: a container was created", name)
		}
	}
}
