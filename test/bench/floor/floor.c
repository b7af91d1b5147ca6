// floor measures the CPU time that the kernel needs for a container, without an agent, a shim or an OCI runtime. Each figure of islet is
// printed as a ratio of it (TestFloor).
//
//	floor ROUNDS ROOTFS CGROUPS    prints the median of the CPU time of each phase in nanoseconds
//
// ROOTFS is a directory with this program as /floor. CGROUPS is the path of the parent cgroup below each hierarchy. The program must run
// as root in mount and network namespaces of its own: it creates a bridge and a table of nftables there.
//
//	start    clone into mount, PID, IPC, UTS and network namespaces, cgroups, 25 mounts, seccomp, execute
//	end      kill, reap, unmount, remove the cgroups
//	netns    create and enter a network namespace; the start has done this too
//	attach   veth pair at a bridge, address, route, element of an nftables set
//	detach   the reverse
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call) \
	do { \
		if ((call) < 0) fail(__LINE__, #call); \
	} while (0)

static void fail(int line, const char *call)
{
	fprintf(stderr, "floor.c:%d: %s: %s\n", line, call, strerror(errno));
	_exit(1);
}

// ---- CPU time ----

static int64_t nanoseconds(clockid_t clock)
{
	struct timespec t;
	CHECK(clock_gettime(clock, &t));
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t own(void) { return nanoseconds(CLOCK_PROCESS_CPUTIME_ID); }

static int64_t cpu_of(pid_t pid)
{
	clockid_t clock;
	errno = clock_getcpuclockid(pid, &clock);
	if (errno) fail(__LINE__, "clock_getcpuclockid");
	return nanoseconds(clock);
}

static int64_t of_ended_children(void)
{
	struct rusage u;
	CHECK(getrusage(RUSAGE_CHILDREN, &u));
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000LL + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000LL;
}

// ---- the container ----

static const char *controllers[] = {"cpu", "memory", "pids", "devices"}; // of cgroup v1
enum { CONTROLLERS = sizeof controllers / sizeof *controllers };

static char cgroup[CONTROLLERS][512];
static int cgroups;

static void name_cgroups(const char *parent, int round)
{
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0) {
		cgroups = 1;
		snprintf(cgroup[0], sizeof cgroup[0], "/sys/fs/cgroup%s/floor%d", parent, round);
		return;
	}
	cgroups = CONTROLLERS;
	for (int i = 0; i < cgroups; i++)
		snprintf(cgroup[i], sizeof cgroup[i], "/sys/fs/cgroup/%s%s/floor%d", controllers[i], parent, round);
}

static const struct {
	const char *source, *target, *type;
	unsigned long flags;
	const char *data;
} mounts[] = {
	{"proc", "proc", "proc", MS_NOSUID | MS_NOEXEC | MS_NODEV, 0},
	{"tmpfs", "dev", "tmpfs", MS_NOSUID | MS_STRICTATIME, "mode=755,size=64k"},
	{"devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"},
	{"mqueue", "dev/mqueue", "mqueue", MS_NOSUID | MS_NOEXEC | MS_NODEV, 0},
	{"shm", "dev/shm", "tmpfs", MS_NOSUID | MS_NOEXEC | MS_NODEV, "mode=1777,size=64m"},
	{"sysfs", "sys", "sysfs", MS_NOSUID | MS_NOEXEC | MS_NODEV | MS_RDONLY, 0},
	{"tmpfs", "sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NOEXEC | MS_NODEV, "mode=755"},
	{"tmpfs", "run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"},
	{"etc/file", "etc/hosts", 0, MS_BIND, 0},
	{"etc/file", "etc/hostname", 0, MS_BIND, 0},
	{"etc/file", "etc/resolv.conf", 0, MS_BIND, 0},
	{"etc/file", "etc/termination-log", 0, MS_BIND, 0},
	{"etc", "etc/token", 0, MS_BIND, 0},
	{"tmpfs", "proc/acpi", "tmpfs", MS_RDONLY, "size=0k"},
	{"tmpfs", "proc/scsi", "tmpfs", MS_RDONLY, "size=0k"},
	{"tmpfs", "sys/firmware", "tmpfs", MS_RDONLY, "size=0k"},
	{"dev/null", "proc/kcore", 0, MS_BIND, 0},
	{"dev/null", "proc/keys", 0, MS_BIND, 0},
	{"dev/null", "proc/timer_list", 0, MS_BIND, 0},
	{"proc/bus", "proc/bus", 0, MS_BIND, 0},
	{"proc/fs", "proc/fs", 0, MS_BIND, 0},
	{"proc/irq", "proc/irq", 0, MS_BIND, 0},
	{"proc/sys", "proc/sys", 0, MS_BIND, 0},
	{"proc/sysrq-trigger", "proc/sysrq-trigger", 0, MS_BIND, 0},
}; // the 25th is the root
enum { MOUNTS = sizeof mounts / sizeof *mounts };

static void make_devices(void)
{
	static const struct {
		const char *name;
		int minor;
	} devices[] = {{"dev/null", 3}, {"dev/zero", 5}, {"dev/full", 7}, {"dev/random", 8}, {"dev/urandom", 9}};
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
		CHECK(mknod(devices[i].name, S_IFCHR | 0666, makedev(1, devices[i].minor)));
	CHECK(mkdir("dev/pts", 0755));
	CHECK(mkdir("dev/mqueue", 0755));
	CHECK(mkdir("dev/shm", 0755));
}

// A file of /proc that this kernel lacks is not mounted over. An OCI runtime does the same.
static void mount_all(const char *root)
{
	CHECK(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0));
	CHECK(mount(root, root, 0, MS_BIND | MS_REC, 0));
	CHECK(chdir(root));
	for (int i = 0; i < MOUNTS; i++) {
		if (mount(mounts[i].source, mounts[i].target, mounts[i].type, mounts[i].flags, mounts[i].data) < 0) {
			if (errno != ENOENT || (strncmp(mounts[i].target, "proc/", 5) && strncmp(mounts[i].target, "sys/", 4)))
				fail(__LINE__, mounts[i].target);
			continue;
		}
		if (mounts[i].type == 0 && mounts[i].source == mounts[i].target)
			CHECK(mount(0, mounts[i].target, 0, MS_BIND | MS_REMOUNT | MS_RDONLY, 0));
		if (!strcmp(mounts[i].target, "dev")) make_devices();
	}
	CHECK(syscall(SYS_pivot_root, ".", "."));
	CHECK(umount2(".", MNT_DETACH));
	CHECK(chdir("/"));
}

static void filter_calls(void)
{
	static const int denied[] = {SYS_acct, SYS_add_key, SYS_bpf, SYS_clock_adjtime, SYS_clock_settime, SYS_delete_module,
		SYS_finit_module, SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_init_module, SYS_kcmp, SYS_kexec_load, SYS_keyctl,
		SYS_lookup_dcookie, SYS_mount, SYS_move_mount, SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_open_tree,
		SYS_perf_event_open, SYS_pivot_root, SYS_quotactl, SYS_reboot, SYS_request_key, SYS_setdomainname, SYS_sethostname,
		SYS_settimeofday, SYS_swapoff, SYS_swapon, SYS_syslog, SYS_umount2, SYS_unshare, SYS_userfaultfd, SYS_vhangup};
	enum { DENIED = sizeof denied / sizeof *denied };
	struct sock_filter code[DENIED + 3];
	int n = 0;
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < DENIED; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, denied[i], DENIED - i, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	struct sock_fprog program = {.len = n, .filter = code};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

// A container has what its first process needs to know.
struct container {
	const char *root;
	int procs[CONTROLLERS]; // open files cgroup.procs
};

static int become_container(void *argument)
{
	struct container *c = argument;
	for (int i = 0; i < cgroups; i++) CHECK(write(c->procs[i], "0", 1));
	CHECK(sethostname("floor", 5));
	mount_all(c->root);
	filter_calls();
	execl("/floor", "/floor", (char *)0); // without arguments it pauses
	fail(__LINE__, "execl");
	return 1;
}

// start_container returns when the kernel has executed the container's program, because of CLONE_VFORK. The process shares the memory until
// then, as a copy would only cost time.
static pid_t start_container(const char *root, const char *work)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	struct container c = {.root = work};
	char path[sizeof cgroup + 32];
	CHECK(mount(root, work, 0, MS_BIND, 0)); // the container's root, which the end unmounts
	for (int i = 0; i < cgroups; i++) {
		CHECK(mkdir(cgroup[i], 0755));
		snprintf(path, sizeof path, "%s/cgroup.procs", cgroup[i]);
		CHECK(c.procs[i] = open(path, O_WRONLY | O_CLOEXEC));
	}
	pid_t pid = clone(become_container, stack + sizeof stack,
		CLONE_VM | CLONE_VFORK | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | SIGCHLD, &c);
	CHECK(pid);
	for (int i = 0; i < cgroups; i++) close(c.procs[i]);
	return pid;
}

static void end_container(pid_t pid, const char *work)
{
	int status;
	CHECK(kill(pid, SIGKILL));
	CHECK(waitpid(pid, &status, 0));
	if (!WIFSIGNALED(status)) errno = ECHILD, fail(__LINE__, "the container had ended");
	CHECK(umount2(work, MNT_DETACH));
	for (int i = 0; i < cgroups; i++) CHECK(rmdir(cgroup[i]));
}

// ---- the network, by netlink ----

static char message[8192];
static size_t used;

static void *reserve(size_t n)
{
	void *p = message + used;
	memset(p, 0, NLMSG_ALIGN(n));
	used += NLMSG_ALIGN(n);
	return p;
}

// open_message begins a message, and close_message sets its length. Several messages share one buffer and one system call.
static struct nlmsghdr *open_message(int type, int flags, const void *head, size_t n)
{
	struct nlmsghdr *h = reserve(sizeof *h);
	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | flags;
	memcpy(reserve(n), head, n);
	return h;
}

static void close_message(struct nlmsghdr *h) { h->nlmsg_len = message + used - (char *)h; }

static struct rtattr *attribute(int type, const void *value, size_t n)
{
	struct rtattr *a = reserve(RTA_LENGTH(n));
	a->rta_type = type;
	a->rta_len = RTA_LENGTH(n);
	if (n) memcpy(RTA_DATA(a), value, n);
	return a;
}

static void close_attribute(struct rtattr *a) { a->rta_len = message + used - (char *)a; }

static void text(int type, const char *s) { attribute(type, s, strlen(s) + 1); }

static void number(int type, uint32_t n) { attribute(type, &n, sizeof n); }

static int netlink_socket(int protocol)
{
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	CHECK(s);
	return s;
}

// exchange sends the messages and reads their acknowledgements.
static void exchange(int s, int acknowledgements, const char *what)
{
	char answer[8192];
	CHECK(send(s, message, used, 0));
	used = 0;
	while (acknowledgements > 0) {
		int n = recv(s, answer, sizeof answer, 0);
		CHECK(n);
		for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, (unsigned)n); h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type != NLMSG_ERROR) continue;
			acknowledgements--;
			struct nlmsgerr *e = NLMSG_DATA(h);
			if (e->error) errno = -e->error, fail(__LINE__, what);
		}
	}
}

// The indexes of the bridge, of the first veth on the node, and of the veth inside each pod. The caller chooses them, so that no answer
// has to be read to learn them.
enum { BRIDGE = 1000, OUTSIDE, INSIDE = 100 };

static void up_message(int index)
{
	struct ifinfomsg up = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
	close_message(open_message(RTM_NEWLINK, NLM_F_ACK, &up, sizeof up));
}

static void link_message(const char *name, const char *kind, int index, int master, int peer_ns)
{
	struct ifinfomsg up = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
	struct nlmsghdr *h = open_message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &up, sizeof up);
	text(IFLA_IFNAME, name);
	if (master) number(IFLA_MASTER, master);
	struct rtattr *info = attribute(IFLA_LINKINFO, 0, 0);
	text(IFLA_INFO_KIND, kind);
	if (peer_ns >= 0) {
		struct rtattr *data = attribute(IFLA_INFO_DATA, 0, 0), *peer = attribute(VETH_INFO_PEER, 0, 0);
		struct ifinfomsg down = {.ifi_index = INSIDE}; // the kernel does not create a peer that is up
		memcpy(reserve(sizeof down), &down, sizeof down);
		text(IFLA_IFNAME, "eth0");
		number(IFLA_NET_NS_FD, peer_ns);
		close_attribute(peer);
		close_attribute(data);
	}
	close_attribute(info);
	close_message(h);
}

// batch encloses messages of nftables, which the kernel commits together.
static void batch(int type)
{
	struct nfgenmsg head = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};
	close_message(open_message(type, 0, &head, sizeof head));
}

static struct nlmsghdr *open_nft(int type, int flags)
{
	struct nfgenmsg head = {.nfgen_family = NFPROTO_INET};
	return open_message(NFNL_SUBSYS_NFTABLES << 8 | type, flags | NLM_F_ACK, &head, sizeof head);
}

static void make_node_network(int route, int nft)
{
	link_message("floor0", "bridge", BRIDGE, 0, -1);
	exchange(route, 1, "bridge");
	batch(NFNL_MSG_BATCH_BEGIN);
	struct nlmsghdr *h = open_nft(NFT_MSG_NEWTABLE, NLM_F_CREATE);
	text(NFTA_TABLE_NAME, "floor");
	close_message(h);
	h = open_nft(NFT_MSG_NEWSET, NLM_F_CREATE);
	text(NFTA_SET_TABLE, "floor");
	text(NFTA_SET_NAME, "pods");
	number(NFTA_SET_ID, htonl(1));
	number(NFTA_SET_KEY_TYPE, htonl(7)); // an IPv4 address
	number(NFTA_SET_KEY_LEN, htonl(4));
	close_message(h);
	batch(NFNL_MSG_BATCH_END);
	exchange(nft, 2, "table and set");
}

static void element(int nft, int type, int flags, uint32_t address)
{
	batch(NFNL_MSG_BATCH_BEGIN);
	struct nlmsghdr *h = open_nft(type, flags);
	text(NFTA_SET_ELEM_LIST_TABLE, "floor");
	text(NFTA_SET_ELEM_LIST_SET, "pods");
	struct rtattr *list = attribute(NFTA_SET_ELEM_LIST_ELEMENTS | NLA_F_NESTED, 0, 0);
	struct rtattr *one = attribute(1 | NLA_F_NESTED, 0, 0), *key = attribute(NFTA_SET_ELEM_KEY | NLA_F_NESTED, 0, 0);
	attribute(NFTA_DATA_VALUE, &address, sizeof address);
	close_attribute(key);
	close_attribute(one);
	close_attribute(list);
	close_message(h);
	batch(NFNL_MSG_BATCH_END);
	exchange(nft, 1, "element");
}

static uint32_t address_of(int round) { return htonl(0x0a580002 + round); }

// A namespace has the descriptors of a new network namespace, and of a socket inside it.
struct namespace {
	int file, socket;
};

static struct namespace make_namespace(void)
{
	int here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(here);
	CHECK(unshare(CLONE_NEWNET));
	struct namespace n = {open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC), netlink_socket(NETLINK_ROUTE)};
	CHECK(n.file);
	CHECK(setns(here, CLONE_NEWNET));
	close(here);
	return n;
}

static void attach(int route, int nft, struct namespace n, int round)
{
	char name[IFNAMSIZ];
	snprintf(name, sizeof name, "veth%d", round);
	link_message(name, "veth", OUTSIDE + round, BRIDGE, n.file);
	exchange(route, 1, "veth");

	up_message(1); // lo
	up_message(INSIDE);
	uint32_t address = address_of(round), gateway = htonl(0x0a580001);
	struct ifaddrmsg a = {.ifa_family = AF_INET, .ifa_prefixlen = 16, .ifa_index = INSIDE};
	struct nlmsghdr *h = open_message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &a, sizeof a);
	attribute(IFA_LOCAL, &address, sizeof address);
	close_message(h);
	struct rtmsg r = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT, .rtm_type = RTN_UNICAST};
	h = open_message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &r, sizeof r);
	attribute(RTA_GATEWAY, &gateway, sizeof gateway);
	close_message(h);
	exchange(n.socket, 4, "links, address and route");
	element(nft, NFT_MSG_NEWSETELEM, NLM_F_CREATE, address);
}

static void detach(int route, int nft, struct namespace n, int round)
{
	struct ifinfomsg outside = {.ifi_index = OUTSIDE + round};
	close_message(open_message(RTM_DELLINK, NLM_F_ACK, &outside, sizeof outside));
	exchange(route, 1, "delete the veth");
	element(nft, NFT_MSG_DELSETELEM, 0, address_of(round));
	close(n.socket);
	close(n.file);
}

// make_root creates the targets of the mounts.
static void make_root(const char *root)
{
	static const char *directories[] = {"proc", "dev", "sys", "run", "etc", "etc/token"};
	static const char *files[] = {"etc/file", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/termination-log"};
	CHECK(chdir(root));
	for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
		if (mkdir(directories[i], 0755) < 0 && errno != EEXIST) fail(__LINE__, directories[i]);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		int f = open(files[i], O_WRONLY | O_CREAT, 0644);
		CHECK(f);
		close(f);
	}
	CHECK(chdir("/"));
}

enum { START, END, NETNS, ATTACH, DETACH, PHASES };
static const char *phases[] = {"start", "end", "netns", "attach", "detach"};

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	if (argc == 1) pause();
	int rounds = argc == 4 ? atoi(argv[1]) : 0;
	if (rounds < 1) return 2;
	int64_t *taken = calloc(PHASES * rounds, sizeof *taken), began, ended, ran;
	char work[512];
	make_root(argv[2]);
	snprintf(work, sizeof work, "%s.mount", argv[2]);
	if (mkdir(work, 0755) < 0 && errno != EEXIST) fail(__LINE__, work);
	int route = netlink_socket(NETLINK_ROUTE), nft = netlink_socket(NETLINK_NETFILTER);
	make_node_network(route, nft);
	for (int i = 0; i < rounds; i++) {
		name_cgroups(argv[3], i);
		ended = of_ended_children();
		began = own();
		pid_t pid = start_container(argv[2], work);
		ran = cpu_of(pid);
		taken[START * rounds + i] = own() - began + ran;
		began = own();
		end_container(pid, work);
		taken[END * rounds + i] = own() - began + of_ended_children() - ended - ran;

		began = own();
		struct namespace n = make_namespace();
		taken[NETNS * rounds + i] = own() - began;
		began = own();
		attach(route, nft, n, i);
		taken[ATTACH * rounds + i] = own() - began;
		began = own();
		detach(route, nft, n, i);
		taken[DETACH * rounds + i] = own() - began;
	}
	for (int p = 0; p < PHASES; p++) {
		qsort(taken + p * rounds, rounds, sizeof *taken, compare);
		printf("%s %lld\n", phases[p], (long long)taken[p * rounds + rounds / 2]);
	}
}
