package medium

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/pattern"
)

// Program is argv[0] of the helper process, which runs islet's own binary.
const Program = "islet [medium]"

const (
	maxEntries = 1000 // maximum number of entries of the root directory that are read
	maxNames   = 32   // maximum number of bundles that are offered
	maxChunk   = 256 << 10
	maxHead    = 64 << 10 // maximum length of the JSON line of a response, in bytes
	maxOpen    = 256      // maximum number of open files
)

// A request is a line of JSON. The helper handles one request at a time, and exits at the end of its standard input.
type request struct {
	Do       string `json:"do"`
	Device   string `json:"device,omitempty"`
	Label    string `json:"label,omitempty"`
	Writable bool   `json:"writable,omitempty"`
	Name     string `json:"name,omitempty"`
	ID       int    `json:"id,omitempty"`
	Data     []byte `json:"data,omitempty"`
}

// A response is a line of JSON, followed by Bytes bytes of data.
type response struct {
	Error      string        `json:"error,omitempty"`
	Number     syscall.Errno `json:"number,omitempty"` // of the error, or 0
	FileSystem string        `json:"fileSystem,omitempty"`
	Names      []string      `json:"names,omitempty"`
	ID         int           `json:"id,omitempty"`
	Size       int64         `json:"size,omitempty"`
	Bytes      int           `json:"bytes,omitempty"`
}

// Main runs the helper. It reads the agent's requests from standard input and writes the responses to standard output.
func Main() int {
	h := &helper{layouts: map[int]format.Layout{}, files: map[int]io.ReadCloser{}, chunk: make([]byte, maxChunk)}
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var q request
		if in.Decode(&q) != nil {
			return 0 // the agent has ended, or needs the helper no longer
		}
		a, data, err := h.serve(&q)
		if err != nil {
			a.Error = message(err)
			if errors.Is(err, os.ErrNotExist) {
				a.Number = unix.ENOENT
			} else {
				_ = errors.As(err, &a.Number)
			}
		}
		a.Bytes = len(data)
		if out.Encode(a) != nil {
			return 1
		}
		if _, err := os.Stdout.Write(data); err != nil {
			return 1
		}
	}
}

// descriptorName matches a path below /proc/self/fd in an error message. The helper removes it, because the agent adds the file's name on
// the device.
var descriptorName = pattern.New(`([a-z]+ )?/proc/self/fd/[0-9]+(: )?`)

func message(err error) string { return descriptorName().ReplaceAllString(err.Error(), "") }

// A helper serves one device at a time.
type helper struct {
	mount   int // a descriptor of the mount, or 0
	root    *os.Root
	layouts map[int]format.Layout
	files   map[int]io.ReadCloser
	last    int // the last ID
	chunk   []byte
}

func (h *helper) serve(q *request) (a response, data []byte, err error) {
	if h.root == nil && q.Do != "mount" {
		return a, nil, errors.New("no medium is mounted")
	}
	switch q.Do {
	case "mount":
		a.FileSystem, a.Names, err = h.open(q)
	case "layout":
		a.ID, err = h.openLayout(q.Name)
	case "open":
		a.ID, a.Size, err = h.openFile(q)
	case "read":
		f := h.files[q.ID]
		if f == nil {
			return a, nil, os.ErrClosed
		}
		n, err := io.ReadFull(f, h.chunk)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
		return a, h.chunk[:n], err
	case "close":
		err = h.closeOne(q.ID)
	case "write":
		err = h.write(q.Name, q.Data)
	case "unmount":
		err = h.unmount()
	}
	return a, nil, err
}

// open mounts the file system of the device if its label is q.Label. It returns the type of the file system and the names of the bundles in
// it. If the mount fails, open returns the type together with the error.
func (h *helper) open(q *request) (fileSystem string, names []string, err error) {
	if h.root != nil {
		return "", nil, errors.New("a medium is mounted already")
	}
	device, err := os.OpenFile(q.Device, os.O_RDONLY|unix.O_NONBLOCK, 0) // O_NONBLOCK: do not wait for a medium
	if err != nil {
		return "", nil, err
	}
	defer device.Close()
	if info, err := device.Stat(); err != nil || info.Mode().Type() != os.ModeDevice {
		return "", nil, errors.Join(err, fmt.Errorf("%s is not a block device", q.Device))
	}
	fileSystem, err = findLabel(device, q.Label)
	if err != nil || fileSystem == "" {
		return "", nil, err
	}
	h.mount, err = mountDevice(fileSystem, q.Device, q.Writable)
	switch {
	case errors.Is(err, unix.EBUSY):
		err = fmt.Errorf("%w: another program uses the device: unmount it there (findmnt %s)", err, q.Device)
	case errors.Is(err, unix.ENODEV):
		err = fmt.Errorf("the kernel has no driver for the file system %s", fileSystem)
	case err == nil:
		h.root, err = os.OpenRoot(descriptorPath(h.mount))
	}
	if err == nil {
		names, err = h.list()
	}
	if err != nil {
		return fileSystem, nil, errors.Join(err, h.unmount())
	}
	return fileSystem, names, nil
}

func descriptorPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// mountDevice mounts a file system and returns the file descriptor of the detached mount. If writable is false, nothing is written to the
// device: the journal is not replayed. A file system error never causes a kernel panic, although the superblock of ext4 may request one
// (errors=panic).
func mountDevice(fileSystem, device string, writable bool) (int, error) {
	fail := func(what string, err error) (int, error) {
		return 0, fmt.Errorf("mount %s as %s: %s: %w", device, fileSystem, what, err)
	}
	fs, err := unix.Fsopen(fileSystem, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail("fsopen", err)
	}
	defer unix.Close(fs)
	err = unix.FsconfigSetString(fs, "source", device)
	if fileSystem == ext4 {
		err = errors.Join(err, unix.FsconfigSetString(fs, "errors", "remount-ro"))
	}
	attributes := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOATIME
	if !writable {
		attributes |= unix.MOUNT_ATTR_RDONLY
		err = errors.Join(err, unix.FsconfigSetFlag(fs, "ro"))
		if fileSystem == ext4 {
			err = errors.Join(err, unix.FsconfigSetFlag(fs, "noload")) // the journal is not replayed
		}
	}
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return fail("fsconfig", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes|unix.MOUNT_ATTR_NOSYMFOLLOW)
	if errors.Is(err, unix.EINVAL) { // Linux before 5.14; os.Root follows no link out of the medium
		fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	}
	if err != nil {
		return fail("fsmount", err)
	}
	return fd, nil
}

// list returns the names of the bundles in the root directory, sorted: tars and OCI layouts. The root directory may itself be a layout.
func (h *helper) list() (names []string, err error) {
	dir, err := h.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	isLayout := func(name string) bool {
		info, err := h.root.Lstat(path.Join(name, ocispec.ImageLayoutFile))
		return err == nil && info.Mode().IsRegular()
	}
	if isLayout(".") {
		names = append(names, ".")
	}
	for _, e := range entries {
		name := e.Name()
		tar := e.Type().IsRegular() && strings.EqualFold(path.Ext(name), ".tar")
		if !strings.HasPrefix(name, ".") && (tar || e.IsDir() && isLayout(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxNames)], nil
}

func (h *helper) openLayout(name string) (int, error) {
	f, err := h.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	l, err := format.OpenLayout(descriptorPath(int(f.Fd())))
	if err != nil {
		return 0, err
	}
	h.last++
	h.layouts[h.last] = l
	return h.last, nil
}

func (h *helper) openFile(q *request) (id int, size int64, err error) {
	l := h.layouts[q.ID]
	switch {
	case l == nil:
		return 0, 0, os.ErrClosed
	case len(h.files) >= maxOpen:
		return 0, 0, unix.EMFILE
	}
	f, size, err := l.Open(q.Name)
	if err != nil {
		return 0, 0, err
	}
	h.last++
	h.files[h.last] = f
	return h.last, size, nil
}

func (h *helper) closeOne(id int) (err error) {
	if f := h.files[id]; f != nil {
		err = f.Close()
	}
	if l := h.layouts[id]; l != nil {
		err = l.Close()
	}
	delete(h.files, id)
	delete(h.layouts, id)
	return err
}

// write replaces a file durably. It follows no link.
func (h *helper) write(name string, data []byte) error {
	const next = "islet.new"
	if err := h.root.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := h.root.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = h.root.Rename(next, name)
	}
	if err != nil {
		return errors.Join(err, h.root.Remove(next))
	}
	return h.sync()
}

// sync writes the whole file system to the device.
func (h *helper) sync() error {
	dir, err := h.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close())
}

func (h *helper) unmount() (err error) {
	for id := range h.files {
		err = errors.Join(err, h.closeOne(id))
	}
	for id := range h.layouts {
		err = errors.Join(err, h.closeOne(id))
	}
	if h.root != nil {
		err = errors.Join(err, h.root.Close())
	}
	if h.mount != 0 {
		err = errors.Join(err, unix.Close(h.mount))
	}
	h.root, h.mount = nil, 0
	return err
}
