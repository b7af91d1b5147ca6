package topology

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Limits for reading /sys.
const (
	maxFile = 1 << 16 // bytes
	maxCPU  = 8192
	maxNode = 64 // the number of bits of a Mask
)

// Read reads the online CPUs and the NUMA nodes from /sys. If the kernel does not report NUMA nodes, it returns one
// node with the given memory and the given huge pages, which are in bytes by page size. If /sys does not contain the
// position of a CPU, the CPU is its own core in socket 0, shares a cache with its socket, and belongs to the first
// node.
func Read(sys fs.FS, memory uint64, huge map[uint64]uint64) (Machine, error) {
	online, err := readList(sys, "devices/system/cpu/online", maxCPU)
	if err != nil {
		return Machine{}, fmt.Errorf("read the online CPUs: %w", err)
	}
	if len(online) == 0 {
		return Machine{}, errors.New("read the online CPUs: there are none")
	}
	m := Machine{CPUs: CPUs{}}
	on := cpuset.New(online...)
	for _, id := range online {
		m.CPUs[id] = readCPU(sys, id, on)
	}
	nodes, err := readList(sys, "devices/system/node/online", maxNode)
	if errors.Is(err, fs.ErrNotExist) {
		m.Nodes = []Node{{ID: 0, Memory: memory, HugePages: huge, Distances: []uint64{10}}}
		return m, nil
	}
	if err != nil {
		return Machine{}, fmt.Errorf("read the NUMA nodes: %w", err)
	}
	placed := map[int]bool{}
	for _, id := range nodes {
		dir := path.Join("devices/system/node", fmt.Sprint("node", id))
		cpus, err := readList(sys, path.Join(dir, "cpulist"), maxCPU)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Machine{}, fmt.Errorf("read the CPUs of NUMA node %d: %w", id, err)
		}
		for _, c := range cpus {
			if at, ok := m.CPUs[c]; ok && !placed[c] {
				at.Node, placed[c] = id, true
				m.CPUs[c] = at
			}
		}
		n := Node{ID: id, HugePages: readHugePages(sys, dir)}
		if n.Memory, err = readMemTotal(sys, path.Join(dir, "meminfo")); err != nil {
			return Machine{}, fmt.Errorf("read the memory of NUMA node %d: %w", id, err)
		}
		n.Distances = parseNumbers(readText(sys, path.Join(dir, "distance")))
		if len(n.Distances) != len(nodes) {
			n.Distances = nil
		}
		m.Nodes = append(m.Nodes, n)
	}
	if len(m.Nodes) == 0 {
		return Machine{}, errors.New("read the NUMA nodes: there are none")
	}
	for id, c := range m.CPUs { // a CPU that belongs to no listed node is assigned to the first node
		if !placed[id] {
			c.Node = m.Nodes[0].ID
			m.CPUs[id] = c
		}
	}
	return m, nil
}

func readCPU(sys fs.FS, id int, on cpuset.CPUSet) CPU {
	dir := path.Join("devices/system/cpu", fmt.Sprint("cpu", id))
	c := CPU{Core: id}
	if n, err := strconv.Atoi(readText(sys, path.Join(dir, "topology/physical_package_id"))); err == nil && n > 0 {
		c.Socket = n
	}
	for _, file := range []string{"core_cpus_list", "thread_siblings_list"} {
		if threads, err := readList(sys, path.Join(dir, "topology", file), maxCPU); err == nil {
			if both := on.Intersection(cpuset.New(threads...)); both.Contains(id) {
				c.Core = both.List()[0]
				break
			}
		}
	}
	c.Cache = c.Socket
	for i := range 8 {
		index := path.Join(dir, "cache", fmt.Sprint("index", i))
		if readText(sys, path.Join(index, "level")) != "3" {
			continue
		}
		if n, err := strconv.Atoi(readText(sys, path.Join(index, "id"))); err == nil && n >= 0 {
			c.Cache = n
		}
	}
	return c
}

// readText returns the trimmed content of a file, or "" if it cannot be read.
func readText(sys fs.FS, name string) string {
	s, _ := readFile(sys, name)
	return s
}

func readFile(sys fs.FS, name string) (string, error) {
	f, err := sys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.TrimSpace(string(b)), err
}

// readList reads a list of numbers that are less than bound, such as 0,2-3.
func readList(sys fs.FS, name string, bound uint64) (out []int, err error) {
	s, err := readFile(sys, name)
	if err != nil || s == "" {
		return nil, err
	}
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		from, err := strconv.ParseUint(low, 10, 32)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(high, 10, 32)
		}
		if err != nil || to >= bound || len(out) > maxCPU {
			return nil, fmt.Errorf("%s: %q is not a list of numbers below %d", name, s, bound)
		}
		for n := from; n <= to; n++ {
			out = append(out, int(n))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// ReadIsolated returns the CPUs on which the kernel does not balance the load of processes (isolcpus).
func ReadIsolated(sys fs.FS) (cpuset.CPUSet, error) {
	list, err := readList(sys, "devices/system/cpu/isolated", maxCPU)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return cpuset.New(list...), err
}

func parseNumbers(s string) (out []uint64) {
	for _, f := range strings.Fields(s) {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil {
			return nil
		}
		out = append(out, n)
	}
	return out
}

// readMemTotal returns MemTotal of a node's meminfo in bytes.
func readMemTotal(sys fs.FS, name string) (uint64, error) {
	s, err := readFile(sys, name)
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(s, "\n") {
		if _, rest, ok := strings.Cut(line, "MemTotal:"); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				if kib, err := strconv.ParseUint(f[0], 10, 50); err == nil {
					return kib << 10, nil
				}
			}
		}
	}
	return 0, fmt.Errorf("%s has no MemTotal", name)
}

func readHugePages(sys fs.FS, dir string) map[uint64]uint64 {
	entries, _ := fs.ReadDir(sys, path.Join(dir, "hugepages"))
	out := map[uint64]uint64{}
	for _, e := range entries {
		size, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kib, err1 := strconv.ParseUint(strings.TrimSuffix(size, "kB"), 10, 40)
		n, err2 := strconv.ParseUint(readText(sys, path.Join(dir, "hugepages", e.Name(), "nr_hugepages")), 10, 20)
		if ok && err1 == nil && err2 == nil {
			out[kib<<10] = n * kib << 10
		}
	}
	return out
}
