package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/islet-edge/islet/internal/capped"
	"github.com/islet-edge/islet/runtime/mounts"
)

const (
	dirMode = 0o750
	// umountTime is the maximum time for a normal unmount of a remote file system.
	umountTime = 30 * time.Second
	// forceTime is the maximum time for a forced unmount of a remote file system. A forced unmount does not need
	// the server.
	forceTime = 10 * time.Second
	waitDelay = time.Second // time to wait for the output of a killed program
)

// bindMount creates a bind mount of a directory at another path. The options come from the mount
// program.
func bindMount(ctx context.Context, from, to string, readOnly bool, options []string) error {
	if there, err := mounts.FindTopmost(to); err != nil || there != nil {
		return err
	}
	if err := os.MkdirAll(to, dirMode); err != nil {
		return err
	}
	if len(options) == 0 {
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s to %s: %w", from, to, err)
		}
		if !readOnly {
			return nil
		}
		var st unix.Statfs_t
		err := unix.Statfs(to, &st)
		if err == nil { // keeps the flags of the source
			keep := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME |
				unix.MS_NODIRATIME | unix.MS_RELATIME)
			err = unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|keep, "")
		}
		if err != nil {
			return errors.Join(fmt.Errorf("make the mount %s read-only: %w", to, err), removeBindMount(to))
		}
		return nil
	}
	if err := runMount(ctx, from, to, "", append([]string{"bind"}, withReadOnly(options, readOnly)...)); err != nil {
		return errors.Join(err, removeBindMount(to))
	}
	return nil
}

func withReadOnly(options []string, readOnly bool) []string {
	if readOnly && !slices.Contains(options, "ro") {
		return append(slices.Clone(options), "ro")
	}
	return options
}

// runMount runs the mount program, which supports the mount helpers of file systems. The program is killed when ctx
// ends. A bind mount with options needs two calls.
func runMount(ctx context.Context, source, target, fsType string, options []string) error {
	isBind, first, second := mountutils.MakeBindOpts(options)
	if !isBind {
		return runProgram(ctx, "mount", mountutils.MakeMountArgs(source, target, fsType, options)...)
	}
	if err := runProgram(ctx, "mount", mountutils.MakeMountArgs(source, target, "", first)...); err != nil {
		return err
	}
	return runProgram(ctx, "mount", mountutils.MakeMountArgs(source, target, "", second)...)
}

// runProgram runs a program on the host until it exits or ctx ends.
func runProgram(ctx context.Context, program string, args ...string) error {
	_, err := programOutput(ctx, program, args...)
	return err
}

// programOutput runs a program and returns its output. A killed program does not exit while it waits for a server that no
// longer responds. The function does not wait for such a program.
func programOutput(ctx context.Context, program string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.WaitDelay = waitDelay
	out := &capped.Buffer{Max: maxProgramOutput}
	c.Stdout, c.Stderr = out, out
	err := c.Start()
	if err == nil {
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		select {
		case err = <-ended:
		case <-ctx.Done():
			select {
			case err = <-ended:
			case <-time.After(2 * waitDelay):
				err = ctx.Err()
			}
		}
	}
	text := strings.TrimSpace(out.String())
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("the program %s is not on this host: %w", program, err)
	case ctx.Err() != nil:
		return text, fmt.Errorf("%s did not end in time: %w", program, ctx.Err())
	}
	return text, fmt.Errorf("%s failed: %w\nArguments: %s\nOutput: %s", program, err, strings.Join(args, " "), text)
}

// maxProgramOutput is the number of bytes that are kept of a program's output.
const maxProgramOutput = 16 << 10

// removeBindMount unmounts a bind mount, and all mounts that containers have made below it. Then it removes the empty
// directory. It does not change the source of the bind mount.
func removeBindMount(path string) error {
	if err := mounts.Detach(path); err != nil {
		return err
	}
	return removeEmpty(path)
}

// removeEmpty removes an empty directory. It fails if files were written to the directory after the unmount.
func removeEmpty(path string) error {
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// unmountDevice unmounts a device. It fails while the mount is in use. A lazy unmount is not used, because it would allow
// another mount of the device while the device is still in use. It also fails if the path does not lead to the mount, because something is
// mounted over a parent directory. Then umount returns EINVAL, as it does if another process has unmounted the device.
func unmountDevice(path string) error {
	var last error
	for range maxUnmounts {
		there, err := mounts.FindTopmost(path)
		if err != nil {
			return err
		}
		if there == nil {
			return removeEmpty(path)
		}
		if last = unix.Unmount(path, unix.UMOUNT_NOFOLLOW); last != nil && !errors.Is(last, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", path, last)
		}
	}
	if last == nil {
		last = errors.New("many mounts are stacked there")
	}
	return fmt.Errorf("%s is still mounted: %w", path, last)
}

// maxUnmounts is the maximum number of mounts that unmountDevice unmounts at one path.
const maxUnmounts = 10

// unmountRemote unmounts a remote file system. It first tries a normal unmount, so that all data is written. If that
// takes too long, it forces the unmount, like a kubelet. Each unmount runs in a separate program, because its process
// may wait for the server in an uninterruptible state, even after the mount has disappeared. This happens to the
// process that releases the last reference.
func unmountRemote(ctx context.Context, path string, orderly time.Duration) error {
	there, err := mounts.FindTopmost(path)
	if err != nil {
		return err
	}
	if there == nil {
		return removeEmpty(path)
	}
	soon, stop := context.WithTimeout(ctx, orderly)
	defer stop()
	failed := runProgram(soon, "umount", path)
	if there, err = mounts.FindTopmost(path); err == nil && there != nil && ctx.Err() == nil {
		soon, stop := context.WithTimeout(ctx, forceTime)
		defer stop()
		failed = errors.Join(failed, runProgram(soon, "umount", "-i", "-f", "-l", path))
		there, err = mounts.FindTopmost(path)
	}
	if err != nil || there != nil {
		return errors.Join(err, failed, fmt.Errorf("%s is still mounted", path))
	}
	return removeEmpty(path)
}

// mountDevice checks and mounts a block device. If the device has no file system and the volume is not read-only, it
// formats the device first. Checking and formatting are long steps of an operation.
func mountDevice(ctx context.Context, dev, path, fsType string, readOnly bool, options []string) error {
	there, err := mounts.FindTopmost(path)
	if err != nil || there != nil {
		return err
	}
	if err := os.MkdirAll(path, dirMode); err != nil {
		return err
	}
	if fsType == "" {
		fsType = "ext4"
	}
	m := mountutils.NewSafeFormatAndMount(mountutils.NewWithoutSystemd(""), contextExec{utilexec.New(), ctx})
	if err := m.FormatAndMount(dev, path, fsType, withReadOnly(options, readOnly)); err != nil {
		return errors.Join(err, unmountDevice(path))
	}
	return nil
}

// contextExec runs programs and kills them when ctx ends. It kills mkfs when the operation ends. It never kills fsck, because that would
// not end the program that fsck has started, and the result of this program would be lost.
type contextExec struct {
	utilexec.Interface
	ctx context.Context //nolint:containedctx // the library passes no context
}

func (b contextExec) Command(cmd string, args ...string) utilexec.Cmd {
	switch {
	case cmd == "fsck":
		_, end := longStep(b.ctx, "the file system of the disk is being checked")
		return longCommand{b.Interface.Command(cmd, args...), end}
	case strings.HasPrefix(cmd, "mkfs."):
		ctx, end := longStep(b.ctx, "the disk is being formatted")
		return longCommand{b.CommandContext(ctx, cmd, args...), end}
	}
	return b.CommandContext(b.ctx, cmd, args...)
}

// A longCommand is a program that is a long step. The library runs it with CombinedOutput.
type longCommand struct {
	utilexec.Cmd
	end func()
}

func (c longCommand) CombinedOutput() ([]byte, error) {
	defer c.end()
	return c.Cmd.CombinedOutput()
}

func checkBlock(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeDevice == 0 || fi.Mode()&fs.ModeCharDevice != 0 {
		return fmt.Errorf("%s is not a block device", path)
	}
	return nil
}

// linkDevice creates the link to a device for a pod.
func linkDevice(dev, path string) error {
	if err := checkBlock(dev); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	if to, err := os.Readlink(path); err == nil && to == dev {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(dev, path)
}

// unlinkDevice removes the link to a device.
func unlinkDevice(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
