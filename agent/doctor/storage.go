package doctor

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A mount is a line of /proc/mounts.
type mount struct {
	device, dir, kind string
	options           []string
}

func (m mount) hasOption(option string) bool { return slices.Contains(m.options, option) }

func (p *checkup) mountTable() []mount {
	var table []mount
	for lines := bufio.NewScanner(strings.NewReader(p.readText("proc/mounts"))); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) >= 4 {
			table = append(table, mount{f[0], unescape(f[1]), f[2], strings.Split(f[3], ",")})
		}
	}
	return table
}

// unescape decodes the escape sequences of blanks in a mount point of /proc/mounts.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountOf returns the mount that contains a path. It considers the mount points that are the path or a
// parent directory of the path, and selects the longest of them. If several mounts have this mount point,
// it returns the last of them.
func (p *checkup) mountOf(path string) mount {
	best := mount{dir: ""}
	for _, m := range p.table {
		if isBelow(path, m.dir) && len(m.dir) >= len(best.dir) {
			best = m
		}
	}
	return best
}

// isBelow reports whether path is dir or is below dir.
func isBelow(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

func (p *checkup) checkMounts(context.Context) {
	state := p.mountOf(p.StateDir)
	for _, c := range []struct {
		id, option string
		severity   Severity
		advice     string
	}{
		{"state-ro", "ro", Error, "remount it: mount -o remount,rw %s; if the kernel made it read-only, the card is failing"},
		{"state-ro", "emergency_ro", Error, "the kernel found an error on %s and stopped all writes: see dmesg, repair the file system " +
			"with fsck and reboot; the card may be failing"},
		{"state-noexec", "noexec", Error, "programs of containers there cannot be executed: mount -o remount,exec %s, or choose " +
			"another --state-dir"},
		{"state-nosuid", "nosuid", Warning, "programs in containers that need setuid (ping, sudo) fail: mount -o remount,suid %s"},
	} {
		if state.hasOption(c.option) {
			p.add(c.id, c.severity, fmt.Sprintf(c.advice, state.dir), "%s is on %s, which is mounted %s", p.StateDir, state.dir, c.option)
		}
	}
	if p.Volatile != "" && state.device == p.Volatile {
		p.add("state-ro", Warning, "repair the disk and reboot; to continue without a reboot, stop islet, run islet cleanup, which ends "+
			"the pods, and mount it read-write",
			"%s is on a disk that takes no writes: changes are kept in memory, and are lost at the next boot",
			p.StateDir)
	} else {
		p.checkFileSystem(state)
	}
	if run := p.mountOf(p.RunDir); run.kind != "" && run.kind != "tmpfs" && run.kind != "ramfs" {
		p.add("run-tmpfs", Warning, "mount a tmpfs on /run, or choose another --run-dir: its files must not survive a reboot",
			"%s is on %s (%s), which survives a reboot", p.RunDir, run.dir, run.kind)
	} else {
		p.add("run-tmpfs", OK, "", "%s does not survive a reboot", p.RunDir)
	}
}

// checkFileSystem checks the type of the state directory's file system.
func (p *checkup) checkFileSystem(state mount) {
	switch kind := state.kind; kind {
	case "overlay", "aufs":
		p.add("state-fs", Warning, "put --state-dir on a disk of its own",
			"%s is on %s, which cannot be a layer of overlayfs: images are copied instead", p.StateDir, kind)
	case "vfat", "exfat", "ntfs", "ntfs3", "fuseblk":
		p.add("state-fs", Error, "put --state-dir on ext4, f2fs, xfs or btrfs", "%s is on %s, which has no owners, modes or links",
			p.StateDir, kind)
	case "nfs", "nfs4", "cifs", "smb3", "9p":
		p.add("state-fs", Error, "put --state-dir on a local disk",
			"%s is on %s: a network file system does not have the locks and durability that the database needs", p.StateDir, kind)
	case "tmpfs", "ramfs":
		p.add("state-fs", Warning, "put --state-dir on a disk", "%s is in memory: pods are lost at a reboot", p.StateDir)
	case "":
		p.add("state-fs", Info, "nothing, if the rest is in order", "cannot read the mount table of this host")
	default:
		p.add("state-fs", OK, "", "%s is on %s", p.StateDir, kind)
		p.checkJournal(state)
	}
}

// checkJournal checks whether a file system may lose data at a power cut. It also checks whether the file system's mount
// options cause unnecessary wear of flash memory.
func (p *checkup) checkJournal(m mount) {
	if strings.HasPrefix(m.kind, "ext") {
		switch {
		case m.kind == "ext2" || m.hasOption("noload") || m.hasOption("norecovery"):
			p.add("state-journal", Warning, "create a journal: tune2fs -O has_journal "+m.device,
				"%s has no journal: a power cut can corrupt it", m.dir)
		case m.hasOption("data=writeback") || m.hasOption("nobarrier") || m.hasOption("barrier=0"):
			p.add("state-journal", Warning, "remove data=writeback and barrier=0 from /etc/fstab",
				"the mount options of %s trade safety for speed: a power cut can leave old data in new files", m.dir)
		}
	}
	if strings.HasPrefix(filepath.Base(m.device), "mmcblk") {
		if m.hasOption("noatime") {
			p.add("state-flash", OK, "", "%s is flash, mounted noatime", m.device)
			return
		}
		p.add("state-flash", Info, "add noatime to its line in /etc/fstab: fewer writes wear the card less",
			"%s is flash and mounted without noatime", m.device)
	}
}

const mib = 1 << 20

// checkDisks checks the free space and inodes of each file system once.
func (p *checkup) checkDisks(ctx context.Context) {
	seen := map[string]bool{}
	for _, dir := range []string{p.StateDir, p.RootDir, p.RunDir} {
		at := p.nearestExisting(dir)
		if dir == "" || seen[p.mountOf(at).dir] {
			continue
		}
		seen[p.mountOf(at).dir] = true
		d, err := p.sys.Disk(ctx, at)
		if err != nil {
			p.add("disk", Info, "run df "+at, "%v", err)
			continue
		}
		const free = "free some: islet images ls shows the sizes of images, journalctl --vacuum-size=50M shrinks the journal"
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
			p.add("disk-inodes", Warning, "remove small files, or recreate the file system with more inodes (mkfs.ext4 -i 8192)",
				"%s has %d inodes left, %d %%", dir, d.InodesFree, percent(d.InodesFree, d.Inodes))
		}
	}
}

// nearestExisting returns the path if it exists. Otherwise it returns the nearest parent directory that exists.
func (p *checkup) nearestExisting(path string) string {
	for path != "/" && path != "." && !p.exists(path) {
		path = filepath.Dir(path)
	}
	return path
}
