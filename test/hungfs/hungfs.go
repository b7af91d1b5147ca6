// Package hungfs provides a FUSE file system whose server a test can stop, as a substitute for a
// network file system. The server is a process. While the server is stopped (SIGSTOP), every access
// to the file system blocks, as if a network server were unreachable. The access blocks until the
// server is killed, or until the file system is unmounted by force.
//
//	test --Process (in a machine)--> server --> /dev/fuse <-- processes that use the file system
//
// After the signal Broken, the server responds to every request with EIO, like a disk that cannot
// read a directory. After the signal Deaf, the server reads every request, but responds to no
// request. A process that waits for such a response cannot even be killed.
//
// The file system contains only the empty directory Dir.
// https://www.kernel.org/doc/html/latest/filesystems/fuse/index.html
package hungfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Dir is the only directory in the file system.
	Dir = "sub"
	// Process is the first argument of the server's process.
	Process = "islet-hungfs"

	root, sub = 1, 2 // node IDs
)

// These are signals to a server.
const (
	Deaf   = unix.SIGUSR1 // the server responds to no further request
	Broken = unix.SIGUSR2 // the server responds to every request with EIO
)

// Main must be called first in TestMain. If the first argument of this process is Process, Main
// mounts the file system at the path in the second argument, starts the server and exits.
func Main() {
	if len(os.Args) < 2 || os.Args[1] != Process {
		return
	}
	var err error
	switch len(os.Args) {
	case 2:
		err = serve(3)
	case 3:
		err = mount(os.Args[2])
	default:
		err = errors.New("usage: " + Process + " DIR")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, Process+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func mount(dir string) error {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/fuse: %w", err)
	}
	dev := os.NewFile(uintptr(fd), "/dev/fuse")
	defer dev.Close()
	if err := unix.Mount(Process, dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)); err != nil {
		return fmt.Errorf("mount at %s: %w", dir, err)
	}
	server := exec.Command("/proc/self/exe")
	server.Args = []string{os.Args[0], Process}
	server.ExtraFiles = []*os.File{dev}
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return server.Start()
}

// These are the kernel's requests, from
// https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/linux/fuse.h
const (
	opLookup, opForget, opGetAttr, opSetAttr, opStatFS        = 1, 2, 3, 4, 17
	opInit, opOpenDir, opReadDir, opReleaseDir, opBatchForget = 26, 27, 28, 29, 42
	opInterrupt                                               = 36
)

type inHeader struct {
	Len, Opcode   uint32
	Unique, Node  uint64
	UID, GID, PID uint32
	_             uint32
}

type attr struct {
	Ino, Size, Blocks, Atime, Mtime, Ctime                                       uint64
	AtimeNsec, MtimeNsec, CtimeNsec, Mode, Nlink, UID, GID, Rdev, BlkSize, Flags uint32
}

func directory(node uint64) attr { return attr{Ino: node, Mode: unix.S_IFDIR | 0o777, Nlink: 2} }

// serve responds to requests until the file system is unmounted. The responses forbid caching in
// the kernel, so that every access causes a request.
func serve(fd int) error {
	told, broken := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(told, Deaf)
	signal.Notify(broken, Broken)
	request := make([]byte, 1<<17+4096)
	for {
		n, err := unix.Read(fd, request)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT):
			continue
		case errors.Is(err, unix.ENODEV):
			return nil
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		}
		var in inHeader
		if err := binary.Read(bytes.NewReader(request[:n]), binary.NativeEndian, &in); err != nil {
			return err
		}
		if in.Opcode == opForget || in.Opcode == opBatchForget || in.Opcode == opInterrupt {
			continue // these requests have no response
		}
		if len(told) > 0 {
			continue
		}
		body, failed := answer(in, request[40:n])
		if len(broken) > 0 {
			failed = syscall.EIO
		}
		var out bytes.Buffer
		head := struct {
			Len    uint32
			Error  int32
			Unique uint64
		}{16, -int32(failed), in.Unique}
		if failed == 0 && body != nil {
			head.Len += uint32(binary.Size(body))
		}
		if err := binary.Write(&out, binary.NativeEndian, head); err != nil {
			return err
		}
		if failed == 0 && body != nil {
			if err := binary.Write(&out, binary.NativeEndian, body); err != nil {
				return err
			}
		}
		if _, err := unix.Write(fd, out.Bytes()); err != nil &&
			!errors.Is(err, unix.ENOENT) { // the process that waited for the response has ended
			return fmt.Errorf("answer request %d: %w", in.Opcode, err)
		}
	}
}

func answer(in inHeader, rest []byte) (body any, failed syscall.Errno) {
	switch in.Opcode {
	case opInit:
		return struct {
			Major, Minor, MaxReadahead, Flags uint32
			MaxBackground, Congestion         uint16
			MaxWrite                          uint32
			_                                 [10]uint32
		}{Major: 7, Minor: 31, MaxWrite: 4096}, 0
	case opLookup:
		if in.Node != root || string(bytes.TrimRight(rest, "\x00")) != Dir {
			return nil, syscall.ENOENT
		}
		return struct {
			Node, Generation, EntryValid, AttrValid uint64
			_                                       uint64
			Attr                                    attr
		}{Node: sub, Attr: directory(sub)}, 0
	case opGetAttr, opSetAttr:
		return struct {
			Valid, _ uint64
			Attr     attr
		}{Attr: directory(in.Node)}, 0
	case opStatFS:
		return struct {
			Blocks, Free, Available, Files, FilesFree uint64
			BlockSize, NameLen, FragmentSize          uint32
			_                                         [7]uint32
		}{1 << 20, 1 << 19, 1 << 19, 1 << 10, 1 << 9, 4096, 255, 4096, [7]uint32{}}, 0
	case opOpenDir:
		return struct{ Handle, Flags uint64 }{}, 0
	case opReadDir, opReleaseDir:
		return nil, 0
	}
	return nil, syscall.ENOSYS
}
