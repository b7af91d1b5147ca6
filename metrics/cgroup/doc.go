// Package cgroup reads the resource usage of cgroups, on cgroup v1 and v2.
//
//	Reader --a few files for Read, all for ReadDetails--> Figures, Details
//	CachedReader --the same; callers within a short time share a reading--> Figures, Details
//
// Files are opened relative to the directory of the cgroup and read into a reused buffer, because a scrape reads hundreds of files. The
// figures of a missing file are zero. A file is missing if the kernel does not have the controller, or if the cgroup has just been removed.
// See https://docs.kernel.org/admin-guide/cgroup-v2.html.
package cgroup
