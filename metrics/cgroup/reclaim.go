package cgroup

// Reclaim counts how the kernel reclaims memory of a cgroup. Only cgroup v2 has these figures.
type Reclaim struct {
	Counted                      bool   // true with cgroup v2
	Throttles                    uint64 // number of times that processes were throttled at memory.high
	Scanned, Stolen              uint64 // pages that were inspected, and pages that were reclaimed
	RefaultedAnon, RefaultedFile uint64 // reclaimed pages that were needed again
	Dirty, Writeback             uint64 // bytes of the page cache that are not on the disk yet, and that are being written
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
