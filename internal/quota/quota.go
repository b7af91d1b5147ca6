package quota

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These constants are from <linux/fs.h>, <linux/quota.h> and <linux/dqblk_xfs.h>.
const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inheritFlag   = 0x200      // FS_XFLAG_PROJINHERIT

	projectQuota = 2                          // PRJQUOTA
	getQuota     = 0x800007<<8 | projectQuota // Q_GETQUOTA
	setQuota     = 0x800008<<8 | projectQuota // Q_SETQUOTA
	getState     = 0x5808<<8 | projectQuota   // Q_XGETQSTATV
	enforcedFlag = 1 << 5                     // FS_QUOTA_PDQ_ENFD
	validLimits  = 1                          // QIF_BLIMITS
	blockSize    = 1024                       // bytes, the unit of limits
)

// These constants define the project IDs that this package assigns. IDs that administrators assign
// are usually smaller.
const (
	firstID  = 1 << 20
	idRange  = 1<<31 - firstID
	maxTries = 1000 // number of attempts to find an unused ID
)

// attributes is the kernel's struct fsxattr, which describes an inode.
type attributes struct {
	flags, extent, extents, project, cow uint32
	_                                    [8]byte
}

// limits is the kernel's struct if_dqblk, which contains the limits and the usage of a project.
type limits struct {
	hard, soft             uint64 // blocks
	used                   uint64 // bytes
	inodesHard, inodesSoft uint64
	inodes                 uint64
	blockTime, inodeTime   uint64
	valid                  uint32
	_                      uint32
}

// state is the kernel's struct fs_quota_statv, which describes the quotas of a file system.
type state struct {
	version int8
	_       uint8
	flags   uint16
	_       [180]byte
}

// Projects assigns project quotas to directories. The zero value is ready to use.
type Projects struct {
	assigning sync.Mutex // held while an ID is assigned, so that no ID is assigned twice
}

// Supported reports whether the file system of a directory enforces project quotas.
func Supported(dir string) bool {
	f, err := openDir(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return isEnforced(f)
}

func openDir(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func isEnforced(f *os.File) bool {
	s := state{version: 1}
	return controlQuota(f, getState, 0, unsafe.Pointer(&s)) == nil && s.flags&enforcedFlag != 0
}

// Limit limits the total size of the files below a directory. The kernel counts only files that are created afterwards, so the directory
// must be empty, unless it already has a project. Limit returns false if the file system does not enforce project quotas, or if the
// directory has files and no project.
func (p *Projects) Limit(dir string, bytes int64) (enforced bool, err error) {
	f, err := openDir(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if !isEnforced(f) {
		return false, nil
	}
	p.assigning.Lock()
	defer p.assigning.Unlock()
	a, err := attributesOf(f)
	if err != nil {
		return false, fmt.Errorf("read the project of %s: %w", dir, err)
	}
	if !hasProject(a) {
		if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
			return false, err
		}
		if a.project, err = unusedID(f, dir); err != nil {
			return false, fmt.Errorf("find a project for %s: %w", dir, err)
		}
	}
	// Set the limit before the directory inherits the ID, so that no file is unlimited.
	l := limits{hard: uint64(max(bytes, 1)+blockSize-1) / blockSize, valid: validLimits}
	if err := controlQuota(f, setQuota, a.project, unsafe.Pointer(&l)); err != nil {
		return false, fmt.Errorf("set the quota of %s: %w", dir, err)
	}
	if a.flags&inheritFlag == 0 {
		a.flags |= inheritFlag
		if err := ioctl(f, setAttributes, unsafe.Pointer(&a)); err != nil {
			return false, fmt.Errorf("set the project of %s: %w", dir, err)
		}
	}
	return true, nil
}

// hasProject reports whether an inode has a project that this package assigned.
func hasProject(a attributes) bool { return a.project >= firstID && a.flags&inheritFlag != 0 }

// unusedID returns a project ID that has neither limits nor usage. It starts its search at a hash
// of the directory's name.
func unusedID(f *os.File, dir string) (uint32, error) {
	h := fnv.New64a()
	h.Write([]byte(dir))
	start := h.Sum64()
	for i := range uint64(maxTries) {
		id := uint32(firstID + (start+i)%idRange)
		var l limits
		err := controlQuota(f, getQuota, id, unsafe.Pointer(&l))
		unused := err == nil && l.hard == 0 && l.soft == 0 && l.used == 0 && l.inodes == 0
		if unused || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
			return id, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, errors.New("no project ID is unused")
}

// Usage returns the number of bytes below a directory that has a limit. It returns false if the directory has no limit.
func (p *Projects) Usage(dir string) (bytes int64, limited bool) {
	f, err := openDir(dir)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	a, err := attributesOf(f)
	if err != nil || !hasProject(a) {
		return 0, false
	}
	var l limits
	if controlQuota(f, getQuota, a.project, unsafe.Pointer(&l)) != nil || l.hard == 0 {
		return 0, false
	}
	return int64(l.used), true
}

// RemoveLimit removes the limit of a directory before the directory is removed. It succeeds if the
// directory has no limit or does not exist.
func (p *Projects) RemoveLimit(dir string) error {
	f, err := openDir(dir)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return nil
		}
		return err
	}
	defer f.Close()
	a, err := attributesOf(f)
	if err != nil || !hasProject(a) {
		return nil
	}
	l := limits{valid: validLimits}
	if err := controlQuota(f, setQuota, a.project, unsafe.Pointer(&l)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove the quota of %s: %w", dir, err)
	}
	return nil
}

func attributesOf(f *os.File) (a attributes, err error) {
	return a, ioctl(f, getAttributes, unsafe.Pointer(&a))
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// controlQuota calls quotactl_fd(2), which exists since Linux 5.14.
func controlQuota(f *os.File, command uintptr, id uint32, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command, uintptr(id), uintptr(arg), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
