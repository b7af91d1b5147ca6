package cgroup

// Reclaim contains the kernel's counters for the reclaim of memory in a cgroup. Only cgroup v2 has these counters.
type Reclaim struct {
	Counted                      bool   // true with cgroup v2
	Throttles                    uint64 // number of times that processes were throttled at memory.high
	Scanned, Stolen              uint64 // number of inspected pages, and of reclaimed pages
	RefaultedAnon, RefaultedFile uint64 // number of reclaimed pages that were read again
	Dirty, Writeback             uint64 // bytes of the page cache that must be written to the disk, and bytes that are being written
}

func (r *Reclaim) stat(k string, n uint64) {
	switch k {
	case "pgscan":
		r.Scanned = n
	case "pgsteal":
		r.Stolen = n
	case "workingset_refault_anon":
		r.RefaultedAnon = n
	case "workingset_refault_file":
		r.RefaultedFile = n
	case "file_dirty":
		r.Dirty = n
	case "file_writeback":
		r.Writeback = n
	}
}
