package doctor

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A mount is a line of /proc/mounts.
type mount struct {
	device, dir, kind string
	options           []string
}

func (m mount) has(option string) bool { return slices.Contains(m.options, option) }

func (p *patient) mountTable() []mount {
	var table []mount
	for lines := bufio.NewScanner(strings.NewReader(p.file("proc/mounts"))); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) >= 4 {
			table = append(table, mount{f[0], unescape(f[1]), f[2], strings.Split(f[3], ",")})
		}
	}
	return table
}

// unescape undoes what the kernel does to blanks in mount points.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountOf gives the mount that holds a path: the last one over its longest
// prefix.
func (p *patient) mountOf(path string) mount {
	best := mount{dir: ""}
	for _, m := range p.table {
		if below(path, m.dir) && len(m.dir) >= len(best.dir) {
			best = m
		}
	}
	return best
}

// below says whether path is dir or lies in it.
func below(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

func (p *patient) mounts(context.Context) {
	state := p.mountOf(p.StateDir)
	for _, c := range []struct {
		id, option string
		severity   Severity
		advice     string
	}{
		{"state-ro", "ro", Error, "remount it: mount -o remount,rw %s; if it became so by itself, the card is failing"},
		{"state-ro", "emergency_ro", Error, "the kernel met an error on %s and writes no more: see dmesg, repair the file system " +
			"with fsck and reboot; the card may be failing"},
		{"state-noexec", "noexec", Error, "containers' files lie there and cannot be executed: mount -o remount,exec %s, or choose " +
			"another --state-dir"},
		{"state-nosuid", "nosuid", Warning, "programs in containers that need setuid (ping, sudo) fail: mount -o remount,suid %s"},
	} {
		if state.has(c.option) {
			p.add(c.id, c.severity, fmt.Sprintf(c.advice, state.dir), "%s lies on %s, which is mounted %s", p.StateDir, state.dir, c.option)
		}
	}
	if p.Volatile != "" && state.device == p.Volatile {
		p.add("state-ro", Warning, "repair the disk and reboot; to go on without a reboot stop islet, run islet cleanup, which ends "+
			"the pods, and mount it read-write",
			"%s is on a disk that takes no writes: what changes is in memory and lost at the next boot",
			p.StateDir)
	} else {
		p.fileSystem(state)
	}
	if run := p.mountOf(p.RunDir); run.kind != "" && run.kind != "tmpfs" && run.kind != "ramfs" {
		p.add("run-tmpfs", Warning, "mount a tmpfs on /run, or choose another --run-dir: what is there must be gone after a reboot",
			"%s lies on %s (%s), which survives a reboot", p.RunDir, run.dir, run.kind)
	} else {
		p.add("run-tmpfs", OK, "", "%s is gone after a reboot", p.RunDir)
	}
}

// fileSystem looks at the kind of the state directory's.
func (p *patient) fileSystem(state mount) {
	switch kind := state.kind; kind {
	case "overlay", "aufs":
		p.add("state-fs", Warning, "put --state-dir on a disk of its own",
			"%s lies on %s, on which overlayfs cannot stack: images are copied instead", p.StateDir, kind)
	case "vfat", "exfat", "ntfs", "ntfs3", "fuseblk":
		p.add("state-fs", Error, "put --state-dir on ext4, f2fs, xfs or btrfs", "%s lies on %s, which has no owners, modes or links",
			p.StateDir, kind)
	case "nfs", "nfs4", "cifs", "smb3", "9p":
		p.add("state-fs", Error, "put --state-dir on a local disk",
			"%s lies on %s: the database needs locks and durability that a network does not give", p.StateDir, kind)
	case "tmpfs", "ramfs":
		p.add("state-fs", Warning, "put --state-dir on a disk", "%s lies in memory: pods are gone after a reboot", p.StateDir)
	case "":
		p.add("state-fs", Info, "nothing, if the rest is in order", "cannot read the mounts of this host")
	default:
		p.add("state-fs", OK, "", "%s lies on %s", p.StateDir, kind)
		p.journal(state)
	}
}

// journal gives hints for flash and against loss of power.
func (p *patient) journal(m mount) {
	if strings.HasPrefix(m.kind, "ext") {
		switch {
		case m.kind == "ext2" || m.has("noload") || m.has("norecovery"):
			p.add("state-journal", Warning, "make a journal: tune2fs -O has_journal "+m.device,
				"%s has no journal: a loss of power can corrupt it", m.dir)
		case m.has("data=writeback") || m.has("nobarrier") || m.has("barrier=0"):
			p.add("state-journal", Warning, "remove data=writeback and barrier=0 from /etc/fstab",
				"%s is mounted for speed: a loss of power can leave old data in new files", m.dir)
		}
	}
	if strings.HasPrefix(filepath.Base(m.device), "mmcblk") {
		if m.has("noatime") {
			p.add("state-flash", OK, "", "%s is flash, mounted noatime", m.device)
			return
		}
		p.add("state-flash", Info, "add noatime to its line in /etc/fstab: fewer writes wear the card less",
			"%s is flash and mounted without noatime", m.device)
	}
}

const mib = 1 << 20

// disks looks at space and inodes, once per file system.
func (p *patient) disks(ctx context.Context) {
	seen := map[string]bool{}
	for _, dir := range []string{p.StateDir, p.RootDir, p.RunDir} {
		at := p.existing(dir)
		if dir == "" || seen[p.mountOf(at).dir] {
			continue
		}
		seen[p.mountOf(at).dir] = true
		d, err := p.sys.Disk(ctx, at)
		if err != nil {
			p.add("disk", Info, "look with df "+at, "%v", err)
			continue
		}
		const free = "free some: islet images ls shows what images take, journalctl --vacuum-size=50M shrinks the journal"
		percent := func(part, whole uint64) uint64 { return part * 100 / max(whole, 1) }
		switch {
		case d.Free < 100*mib && d.Total > 100*mib:
			p.add("disk-space", Error, free, "%s has %d MiB left: pods and the database cannot write", dir, d.Free/mib)
		case percent(d.Free, d.Total) < 10:
			p.add("disk-space", Warning, free, "%s has %d MiB left, %d %%", dir, d.Free/mib, percent(d.Free, d.Total))
		default:
			p.add("disk-space", OK, "", "%s has %d MiB left", dir, d.Free/mib)
		}
		if d.Inodes > 0 && percent(d.InodesFree, d.Inodes) < 5 {
			p.add("disk-inodes", Warning, "remove small files, or make the file system anew with more (mkfs.ext4 -i 8192)",
				"%s has %d inodes left, %d %%", dir, d.InodesFree, percent(d.InodesFree, d.Inodes))
		}
	}
}

// existing is the nearest directory above a path that is there.
func (p *patient) existing(path string) string {
	for path != "/" && path != "." && !p.exists(path) {
		path = filepath.Dir(path)
	}
	return path
}

func (p *patient) memory(context.Context) {
	var kib uint64
	for line := range strings.SplitSeq(p.file("proc/meminfo"), "\n") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ = strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		}
	}
	switch total := kib >> 10; {
	case kib == 0:
		p.add("memory", Info, "nothing, if the rest is in order", "cannot read the size of the memory")
	case total < 80: // of 128 MiB Linux has some 92 left for programs
		p.add("memory", Error, "use a machine with 256 MiB or more", "%d MiB of memory are too little", total)
	case total < 192:
		p.add("memory", Warning, "run nothing but a few small static programs here, or use a machine with 256 MiB or more",
			"%d MiB of memory are just enough", total)
	case total < 400:
		p.add("memory", Warning, "run few and small pods, each with a memory limit", "%d MiB of memory are tight", total)
	default:
		p.add("memory", OK, "", "%d MiB of memory", total)
	}
}
