package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/host"

	"github.com/islet-edge/islet/internal/bootid"
)

// Identity contains the properties that do not change while the machine runs. Unknown properties are empty.
type Identity struct {
	Kernel       string    // the kernel release, for example 6.12.41
	OSImage      string    // for example Debian GNU/Linux 12 (bookworm)
	Architecture string    // Go's name
	MachineID    string    // /etc/machine-id
	SystemUUID   string    // the UUID of the firmware; if there is none, the MachineID
	BootID       string    // a new value at each boot
	BootTime     time.Time // wrong if the clock was wrong at the boot
	CPUs         int       // logical, online
	Memory       uint64    // bytes
	Swap         uint64    // bytes
}

// Identity returns the identity of the machine. After the first success, all calls return the same result.
func (h *Host) Identity(ctx context.Context) (Identity, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.identity != nil {
		return *h.identity, nil
	}
	ctx = h.withPaths(ctx)
	id := Identity{
		OSImage:      h.osImage(),
		Architecture: runtime.GOARCH,
		MachineID:    h.readLine("etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID:   strings.ToLower(h.readLine("sys/class/dmi/id/product_uuid", "proc/device-tree/vm,uuid", "etc/machine-id")),
		BootID:       bootid.ReadKernel(os.DirFS(h.root)),
	}
	var err error
	if id.Kernel, err = host.KernelVersionWithContext(ctx); err != nil {
		return Identity{}, fmt.Errorf("read kernel version: %w", err)
	}
	boot, err := h.bootTime()
	if err != nil {
		return Identity{}, err
	}
	id.BootTime = boot
	if id.CPUs, err = cpu.CountsWithContext(ctx, true); err != nil {
		return Identity{}, fmt.Errorf("count CPUs: %w", err)
	}
	m, err := h.readMemory(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("read memory size: %w", err)
	}
	id.Memory, id.Swap = m.Total, m.SwapTotal
	h.identity = &id
	return id, nil
}

// bootTime returns the time of the boot (btime in /proc/stat). gopsutil has a similar function, but it returns another time in a container,
// and executes programs to detect a container.
func (h *Host) bootTime() (time.Time, error) {
	f, err := os.Open(h.path("proc/stat"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read boot time: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "btime "); ok {
			seconds, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("read boot time: %w", err)
			}
			return time.Unix(seconds, 0), nil
		}
	}
	return time.Time{}, fmt.Errorf("read boot time: no btime in %s", f.Name())
}

// HugePages returns the amount of memory that is reserved for huge pages, in bytes. The key is the size of a page in bytes.
func (h *Host) HugePages() (map[uint64]uint64, error) {
	dir := h.path("sys/kernel/mm/hugepages")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the kernel does not support huge pages
	}
	if err != nil {
		return nil, fmt.Errorf("read huge pages: %w", err)
	}
	pages := map[uint64]uint64{}
	for _, e := range entries {
		var kib, n uint64
		if _, err := fmt.Sscanf(e.Name(), "hugepages-%dkB", &kib); err != nil {
			continue
		}
		if _, err := fmt.Sscan(h.readLine("sys/kernel/mm/hugepages/"+e.Name()+"/nr_hugepages"), &n); err != nil {
			return nil, fmt.Errorf("read huge pages of %d KiB: %w", kib, err)
		}
		pages[kib<<10] = n * kib << 10
	}
	return pages, nil
}

// readLine returns the first line of a file, without white space. It tries several files in order, until one has a first line that is not
// empty. If there is no such file, it returns "".
func (h *Host) readLine(files ...string) string {
	for _, file := range files {
		data, err := os.ReadFile(h.path(file))
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(string(data), "\n")
		if first = strings.Trim(first, " \t\r\x00"); first != "" {
			return first
		}
	}
	return ""
}

// osImage returns the name of the distribution (PRETTY_NAME in os-release), as a kubelet does.
func (h *Host) osImage() string {
	for _, file := range []string{"etc/os-release", "usr/lib/os-release"} {
		data, err := os.ReadFile(h.path(file))
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				return strings.Trim(strings.TrimSpace(name), `"'`)
			}
		}
	}
	return "Linux"
}
