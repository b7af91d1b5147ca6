package host

import (
	"context"
	"fmt"
	"time"

	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/disk"
	"github.com/shirou/gopsutil/v3/load"
	"github.com/shirou/gopsutil/v3/mem"
)

// Usage contains the CPU time, the memory usage and the load of the machine at one time.
type Usage struct {
	Time   time.Time
	CPU    CPU
	Memory Memory
	Load   [3]float64 // over 1, 5 and 15 minutes
}

// CPU contains the usage of all processors together.
type CPU struct {
	Busy  time.Duration // CPU time since the boot
	Cores float64       // mean number of busy cores since the previous Usage; for the first Usage, since the boot
}

// Memory contains amounts of memory in bytes.
type Memory struct {
	Total, Available, Used uint64 // Used is Total minus Available
	SwapTotal, SwapFree    uint64
}

// Usage returns the usage of the machine. The result is at most MinInterval old.
func (h *Host) Usage(ctx context.Context) (Usage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.last != nil && now.Sub(h.last.Time) < h.minInterval {
		return *h.last, nil
	}
	ctx = h.withPaths(ctx)
	u := Usage{Time: now}
	var err error
	if u.Memory, err = h.Memory(ctx); err != nil {
		return Usage{}, err
	}
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(times) == 0 {
		return Usage{}, fmt.Errorf("read CPU use: %w", err)
	}
	t := times[0]
	busy := t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal
	u.CPU.Busy = inSeconds(busy)
	if h.last != nil {
		u.CPU.Cores = max(0, (u.CPU.Busy-h.last.CPU.Busy).Seconds()/now.Sub(h.last.Time).Seconds())
	} else if up, err := h.readUptime(); err == nil && up > 0 {
		u.CPU.Cores = busy / up.Seconds()
	}
	if avg, err := load.AvgWithContext(ctx); err == nil {
		u.Load = [3]float64{avg.Load1, avg.Load5, avg.Load15}
	}
	h.last = &u
	return u, nil
}

// Memory reads the current memory usage.
func (h *Host) Memory(ctx context.Context) (Memory, error) {
	m, err := h.readMemory(h.withPaths(ctx))
	if err != nil {
		return Memory{}, fmt.Errorf("read memory use: %w", err)
	}
	return Memory{
		Total: m.Total, Available: m.Available, Used: m.Total - min(m.Available, m.Total),
		SwapTotal: m.SwapTotal, SwapFree: m.SwapFree,
	}, nil
}

// readMemory reads meminfo. If the file cannot be read, for example because the process has no free file descriptor, gopsutil v3 returns
// zeros. readMemory then returns an error. Otherwise the machine would seem to have no free memory.
func (h *Host) readMemory(ctx context.Context) (*mem.VirtualMemoryStat, error) {
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err == nil && m.Total == 0 {
		err = fmt.Errorf("%s has no memory size, or could not be read", h.path("proc/meminfo"))
	}
	return m, err
}

func (h *Host) readUptime() (time.Duration, error) {
	var up float64
	_, err := fmt.Sscan(h.readLine("proc/uptime"), &up)
	return inSeconds(up), err
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Disk contains the size and usage of a file system, in bytes and inodes. Free is the space for
// unprivileged users.
type Disk struct {
	Path                           string
	Type                           string // for example ext4; a number if the name is not known
	Total, Free, Used              uint64
	Inodes, InodesFree, InodesUsed uint64 // 0 if the file system has no limit
}

// Disk returns the size and usage of the file system that contains the given path. It makes one system call and does not cache the result.
func (h *Host) Disk(ctx context.Context, path string) (Disk, error) {
	s, err := disk.UsageWithContext(h.withPaths(ctx), path)
	if err != nil {
		return Disk{}, fmt.Errorf("measure the disk of %s: %w", path, err)
	}
	return Disk{
		Path: path, Type: s.Fstype, Total: s.Total, Free: s.Free, Used: s.Used,
		Inodes: s.InodesTotal, InodesFree: s.InodesFree, InodesUsed: s.InodesUsed,
	}, nil
}
