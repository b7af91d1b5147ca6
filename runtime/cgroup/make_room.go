package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// errInUse is the error of a memory limit that is below the memory in use.
var errInUse = errors.New("the memory limit is below the memory in use")

// makeRoom reclaims memory of a cgroup of v2 until a new memory limit fits. It returns errInUse if the limit does not fit: the kernel would
// kill processes if the limit was set. The page cache is no obstacle, because the kernel reclaims it. Before kernel 5.19 there is no
// memory.reclaim. Then makeRoom sets memory.high for a moment, which makes the kernel reclaim and kills nothing. The parameter write is
// writeOnce, except in tests.
func makeRoom(dir string, limit int64, write func(path, text string) error) error {
	used, cache, err := readUsage(dir)
	if err != nil || used <= limit {
		return err
	}
	if used-cache > limit {
		return fmt.Errorf("%w: limit %d, in use %d besides %d of caches", errInUse, limit, used-cache, cache)
	}
	failed := write(filepath.Join(dir, "memory.reclaim"), strconv.FormatInt(used-limit, 10))
	if errors.Is(failed, unix.ENOENT) {
		path, before := filepath.Join(dir, memoryHigh), readLine(&err, dir, memoryHigh)
		if err != nil {
			return err
		}
		failed = write(path, strconv.FormatInt(limit, 10))
		defer write(path, before)
	}
	if used, _, err = readUsage(dir); err == nil && used > limit {
		return fmt.Errorf("%w: limit %d, in use %d after reclaim: %v", errInUse, limit, used, failed)
	}
	return err
}

// writeOnce writes to a file of a cgroup. For memory.reclaim it returns EAGAIN if less memory was reclaimed. It does not use an os.File,
// which would repeat the write after EAGAIN.
func writeOnce(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

// readUsage returns the memory usage of a cgroup of v2 in bytes, and the part of it that the kernel can reclaim without swap: the files on
// the LRU lists, except those that must be written to the disk first, and the reclaimable kernel memory.
func readUsage(dir string) (used, cache int64, err error) {
	used = parseLimit(&err, readLine(&err, dir, "memory.current"))
	for line := range strings.Lines(readLine(&err, dir, "memory.stat")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "active_file", "inactive_file", "slab_reclaimable":
			cache += parseLimit(&err, value)
		case "file_dirty", "file_writeback":
			cache -= parseLimit(&err, value)
		}
	}
	return used, max(cache, 0), err
}
