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

// From <linux/fs.h>, <linux/quota.h> and <linux/dqblk_xfs.h>.
const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	inherit       = 0x200      // FS_XFLAG_PROJINHERIT

	project     = 2                     // PRJQUOTA
	getQuota    = 0x800007<<8 | project // Q_GETQUOTA
	setQuota    = 0x800008<<8 | project // Q_SETQUOTA
	getState    = 0x5808<<8 | project   // Q_XGETQSTATV
	enforced    = 1 << 5                // FS_QUOTA_PDQ_ENFD
	validLimits = 1                     // QIF_BLIMITS
	block       = 1024                  // in which limits are
)

// IDs of projects that this package gives: those of people are small.
const (
	firstID = 1 << 20
	ids     = 1<<31 - firstID
	tries   = 1000 // for one that nobody has
)

// attributes are those of an inode (struct fsxattr).
type attributes struct {
	flags, extent, extents, project, cow uint32
	_                                    [8]byte
}

// limits are those of a project (struct if_dqblk).
type limits struct {
	hard, soft             uint64 // blocks
	used                   uint64 // bytes
	inodesHard, inodesSoft uint64
	inodes                 uint64
	blockTime, inodeTime   uint64
	valid                  uint32
	_                      uint32
}

// state is that of a file system's quotas (struct fs_quota_statv).
type state struct {
	version int8
	_       uint8
	flags   uint16
	_       [180]byte
}

// Projects gives directories quotas. The zero value works.
type Projects struct {
	giving sync.Mutex // one ID at a time
}

// Supported reports whether the file system of a directory keeps project quotas.
func Supported(dir string) bool {
	f, err := open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return keeps(f)
}

func open(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

func keeps(f *os.File) bool {
	s := state{version: 1}
	return control(f, getState, 0, unsafe.Pointer(&s)) == nil && s.flags&enforced != 0
}

// Limit bounds what is below a directory to so many bytes. A directory that has no project
// yet must be empty, for only what is made from then on counts. kept is false where the file
// system has no such quotas, and for a directory that is not empty.
func (p *Projects) Limit(dir string, bytes int64) (kept bool, err error) {
	f, err := open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if !keeps(f) {
		return false, nil
	}
	p.giving.Lock()
	defer p.giving.Unlock()
	a, err := attributesOf(f)
	if err != nil {
		return false, fmt.Errorf("read the project of %s: %w", dir, err)
	}
	if !ours(a) {
		if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
			return false, err
		}
		if a.project, err = free(f, dir); err != nil {
			return false, fmt.Errorf("find a project for %s: %w", dir, err)
		}
	}
	// The limit is there before the first file can be.
	l := limits{hard: uint64(max(bytes, 1)+block-1) / block, valid: validLimits}
	if err := control(f, setQuota, a.project, unsafe.Pointer(&l)); err != nil {
		return false, fmt.Errorf("set the quota of %s: %w", dir, err)
	}
	if a.flags&inherit == 0 {
		a.flags |= inherit
		if err := ioctl(f, setAttributes, unsafe.Pointer(&a)); err != nil {
			return false, fmt.Errorf("set the project of %s: %w", dir, err)
		}
	}
	return true, nil
}

// ours reports whether a directory has a project of this package's.
func ours(a attributes) bool { return a.project >= firstID && a.flags&inherit != 0 }

// free finds an ID that nothing has: of the directory's name, or one of those after it.
func free(f *os.File, dir string) (uint32, error) {
	h := fnv.New64a()
	h.Write([]byte(dir))
	start := h.Sum64()
	for i := range uint64(tries) {
		id := uint32(firstID + (start+i)%ids)
		var l limits
		err := control(f, getQuota, id, unsafe.Pointer(&l))
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || err == nil && l.hard == 0 && l.soft == 0 && l.used == 0 && l.inodes == 0 {
			return id, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, errors.New("all have something")
}

// Usage is how many bytes are below a directory that Limit bounds.
func (p *Projects) Usage(dir string) (bytes int64, known bool) {
	f, err := open(dir)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	a, err := attributesOf(f)
	if err != nil || !ours(a) {
		return 0, false
	}
	var l limits
	if control(f, getQuota, a.project, unsafe.Pointer(&l)) != nil || l.hard == 0 {
		return 0, false
	}
	return int64(l.used), true
}

// Forget gives back the limit of a directory that is about to be removed. One that has none
// is success, and so is one that is not there.
func (p *Projects) Forget(dir string) error {
	f, err := open(dir)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			return nil
		}
		return err
	}
	defer f.Close()
	a, err := attributesOf(f)
	if err != nil || !ours(a) {
		return nil
	}
	l := limits{valid: validLimits}
	if err := control(f, setQuota, a.project, unsafe.Pointer(&l)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("give back the quota of %s: %w", dir, err)
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

// control is quotactl_fd(2), which Linux has since 5.14.
func control(f *os.File, command uintptr, id uint32, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command, uintptr(id), uintptr(arg), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
